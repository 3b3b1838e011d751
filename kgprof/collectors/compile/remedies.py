"""What to write so that a guard no longer fails, as code: one remedy for each class of guard.

A remedy is offered only where its condition holds. A program of the tests applies it and then has
neither the finding nor the graphs that it cost. Where nothing here holds, the rule's remedy is all
that is known.
"""

import re
from collections.abc import Callable, Mapping, Sequence

from kgprof import model as m
from kgprof.collectors.compile.input_sizes import MEMBER, InputSize
from kgprof.collectors.compile.tried_settings import COMMENT, NOT_TRIED, where_it_helped
from kgprof.collectors.guard_text import (
    Guard,
    aliased,
    devices_of,
    is_condition,
    is_switched,
    of_array,
    other_settings,
)
from kgprof.reading.dynamo_settings import ALL_SIZES
from kgprof.reading.source_text import LAMBDA
from kgprof.wording import clause


class Cause(m.Model):
    """The guards on one thing that made torch compile one function again."""

    # one at least, in the order of the calls; all of them on the same source
    guards: tuple[Guard, ...]
    function: str  # what was compiled: "Model.step", "Linear"
    wraps: bool = False  # it is called through torch's wrapper, which many modules share
    modules: int = 0  # at torch's limit: modules that share the code, each of which needs one entry
    scheduler: str = ""  # that the program makes, and that cycles the momentum: "OneCycleLR"
    # the only comparison for which the function uses the value: "task == 'detect'"
    comparison: str = ""
    returned: bool = False  # the function only calls it, on what it then returns
    library: bool = False  # the function is a library's: its variables are none of the owner's
    with_parameter: bool = False  # its sizes are always those of a parameter
    is_constant: bool = False  # the function's own code makes a constant of this size
    values: int = 0  # how many of it came, at least
    beside_others: bool = False  # other tensors came, too: torch compiles for those anyway
    constant_at: m.Location | None = None  # the project's line that does
    together: tuple[InputSize, ...] = ()  # what varied with this size, itself included
    # a function that leads to its calls is compiled, too: torch raises at a mark there
    within_compiled: bool = False
    not_static: str = ""  # of a torch.compile that is given dynamic=False: the same without it
    only_computed: bool = False  # a number, and each use of it may take a tensor
    of_many_types: bool = False  # it comes as numbers of several types, or as a tensor, too
    in_turn: bool = False  # it is of several models, one after the other
    only_grows: bool = False  # a list of which the function only appends to
    switched: str = ""  # the only module that the program sets to training or evaluation
    is_argument: bool | None = True  # the callers give it by this name; None: not known
    is_rest: bool = False  # it is, or lies in, the function's *args or **kwargs
    # settings by name, as far as they were tried: what each does, empty where it does not help
    tried: Mapping[str, str] = {}

    @property
    def guard(self) -> Guard:
        return self.guards[0]

    @property
    def name(self) -> str:
        return name_of(self.guard)

    @property
    def short(self) -> str:
        """The function's name without its class; a lambda has none."""
        name = self.function.rpartition(".")[2]
        if name == LAMBDA:
            return "..."
        return name

    @property
    def key(self) -> str:
        """Of an optimizer's setting."""
        found = param_group(self.guard)
        if found is None:
            return ""
        return found["key"]

    @property
    def dtype(self) -> str:
        """A dtype for all calls: of floating ones that of the first graph, of integers the widest.

        There is none for both, and none for bool, int8 and uint8: a mask, a quantised value or the
        brightness of a pixel means something else as a number of another kind.
        """
        names = [name for guard in self.guards for name in (guard.expected, guard.actual) if name]
        known = [_DTYPES.get(name, "") for name in names]
        if names and all("float" in name for name in known):
            return known[0]
        if names and set(known) <= set(_INTEGERS):
            return max(known, key=_INTEGERS.index)
        return ""

    @property
    def device(self) -> str:
        """torch's name for the device that the rejected code was compiled for: "cpu", "cuda"."""
        names = devices_of(self.guard.expected)
        if len(names) != 1 or "Meta" in names:  # a tensor there has no data
            return ""
        return names.pop().lower()


def name_of(guard: Guard) -> str:
    """The variable or attribute as the program writes it: "w", "self.strength", "THRESHOLD"; of a
    functools.partial its keyword."""
    if guard.variable:
        return guard.variable
    partial = _PARTIAL.fullmatch(guard.source)
    return partial["name"] if partial else _written(guard.source)


def _written(source: str) -> str:
    found = re.fullmatch(r"[LG]\['(\w+)'\](.*)", source)
    return MEMBER.sub(r".\1", found[1] + found[2] if found else source)


# What to write for a cause: a text with fields of the Cause ``c``, or what makes it.
_Text = str | Callable[[Cause], str]


class Remedy(m.Model):
    """``code`` is what to write and ``effect`` what it changes."""

    name: str
    holds: Callable[[Cause], bool]
    code: _Text
    effect: _Text


def as_code(cause: Cause) -> str:
    """One line of code and, behind ``#``, what it changes; empty where no remedy is known. None
    names what only a library's function has."""
    source = cause.guard.source
    for remedy in REMEDIES:
        if remedy.holds(cause):
            code = _filled(remedy.code, cause)
            fix = f"{code}{COMMENT}{_filled(remedy.effect, cause)}"
            shown = where_it_helped(fix, cause.tried, NOT_TRIED)
            if shown and not (cause.library and source and source in code):
                return shown
    return ""


def _filled(text: _Text, cause: Cause) -> str:
    if isinstance(text, str):
        return text.format(c=cause)
    return text(cause)


_MOST_ENTRIES = 256  # accumulated_recompile_limit, if the program does not set it
_ONE_EACH = (
    "one entry for each of the {} modules, which share one limit, and more if one is compiled for "
    "several kinds of input; before the first call"
)


def _limit(modules: int) -> str:
    return f"torch._dynamo.config.recompile_limit = {modules}"


def room_for_all(modules: int) -> str:
    """The limit is per code object, which all modules of a class share. Empty for no modules, and
    for more than torch keeps entries of."""
    if not 0 < modules <= _MOST_ENTRIES:
        return ""
    return f"{_limit(modules)}  # {_ONE_EACH.format(modules)}"


_ALIKE = "and the same for what it is computed with"  # torch names the first that changed
_DOUBLE = "with dtype=torch.float64 if the tensors are"
_MOST_MARKS = 2
_ALL_SIZES = "torch.compile(..., dynamic=True)"


def mark(sizes: Sequence[InputSize]) -> str:
    """The lines that make torch compile once for all sizes of these dimensions.

    Unmarked, a dimension that is compared with a marked one would make a constant of it. torch
    refuses a mark on what a line needs as a number, and on a size of 0 or 1, if it is more than a
    wish: it is one where torch has not shown that it can vary.
    """
    by_tensor: dict[str, list[InputSize]] = {}
    for size in sizes:
        by_tensor.setdefault(_written(size.source), []).append(size)
    # an array takes no mark
    are_tensors = all(of_array(tensor) == tensor for tensor in by_tensor)
    if len(by_tensor) > _MOST_MARKS or not all(size.is_always for size in sizes) or not are_tensors:
        return _ALL_SIZES
    can_vary = all(size.is_symbol and min(size.sizes) > 1 for size in sizes)
    function = "mark_dynamic" if can_vary else "maybe_mark_dynamic"
    return "; ".join(
        f"torch._dynamo.{function}({tensor}, {_dimensions(of)})" for tensor, of in by_tensor.items()
    )


def _sizes_made_dynamic(cause: Cause) -> str:
    """What was tried, else marks, else the same for all sizes."""
    is_tried = bool(cause.tried.get(ALL_SIZES.name))
    no_mark = is_tried or cause.within_compiled or cause.is_rest
    return _ALL_SIZES if no_mark else mark(cause.together)


def _dimensions(sizes: Sequence[InputSize]) -> str:
    dimensions = [size.dimension for size in sizes]
    return str(dimensions if len(dimensions) > 1 else dimensions[0])


def _effect_of_marks(cause: Cause) -> str:
    sizes = sorted(sizes_of(cause.guards))
    apart = [str(size) for size in sizes if size < 2]
    conditions = []
    if _sizes_made_dynamic(cause) != _ALL_SIZES:
        conditions.append("before the first call")
    if not all(each.is_symbol for each in cause.together):
        conditions.append("unless a line needs a size as a number, or loops over the tensor")
    parts = (
        ", ".join(conditions),
        f"sizes such as {', '.join(map(str, sizes))}",
        clause("torch compiles for ", " and ".join(apart), " apart"),
        cause.tried.get(ALL_SIZES.name) or NOT_TRIED,
    )
    return "; ".join(filter(None, parts))


def sizes_of(guards: Sequence[Guard]) -> set[int]:
    return {
        int(size) for guard in guards for size in (guard.expected, guard.actual) if size.isdecimal()
    }


# ---------------------------------------------------------------- what a value is

_OF_WRAPPER = ("args[", "kwargs[")  # what it passes on; the program has no such names
_OF_A_SET = ("set.__contains__", "not set.__contains__")
_FLOAT = re.compile(r"-?(\d+\.\d*(e[+-]?\d+)?|\d+e[+-]?\d+|inf|nan)")
_INT = re.compile(r"-?\d+")
_TEXT = re.compile(r"""b?['"].*""", re.DOTALL)
_ATTRIBUTE = re.compile(r"self(?:\.[A-Za-z_]\w*)+")
_PARTIAL = re.compile(r"(?P<partial>.+)\.keywords\['(?P<name>\w+)'\]")
_PARAM_GROUP = re.compile(r"(?:.*\.)?param_groups\[(?P<group>\d+)\]\['(?P<key>\w+)'\](?P<part>.*)")
STATIC_INT = "allow_unspec_int_on_nn_module"
_STATIC_PARAMETER = "force_parameter_static_shapes"
_OPTIMIZERS = (
    *("Adadelta", "Adagrad", "Adam", "Adamax", "AdamW", "ASGD", "Muon", "NAdam", "RAdam"),
    *("RMSprop", "Rprop", "SGD"),
)
NUMBERS = ("<class 'int'>", "<class 'float'>", "a tensor")
_DTYPES = {
    "Float": "float32",
    "Double": "float64",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Long": "int64",
    "Int": "int32",
    "Short": "int16",
}
_INTEGERS = ("int16", "int32", "int64")  # each holds those before it
_SETTERS = {
    "num_threads": "torch.set_num_threads(...)",
    "default_dtype": "torch.set_default_dtype(...)",
    "deterministic_algorithms": "torch.use_deterministic_algorithms(...)",
    "allow_tf32": "torch.backends.cuda.matmul.allow_tf32 = ...",
}


def param_group(guard: Guard) -> re.Match[str] | None:
    """``group``, ``key`` and ``part`` of an optimizer's setting: "param_groups[0]['betas'][0]"."""
    return _PARAM_GROUP.fullmatch(guard.source)


def is_number(guard: Guard) -> bool:
    value = guard.expected
    return guard.kind == "value" and bool(_FLOAT.fullmatch(value) or _INT.fullmatch(value))


def _is_tensor_instead(cause: Cause) -> bool:
    """A number that the program only computes with can be a 0-d tensor."""
    return is_number(cause.guard) and cause.only_computed


def _is_size(cause: Cause) -> bool:
    return (
        cause.guard.kind == "size"
        and cause.guard.dimension is not None
        and bool(cause.together)
        and not cause.beside_others
        and len(sizes_of(cause.guards) - {0, 1}) > 1  # of these, torch compiles for each
    )


def _is_global(cause: Cause) -> bool:
    return cause.guard.source.startswith("G['")


def _is_of_the_model(guard: Guard) -> bool:
    """Whether it is about what a model consists of, which another model has otherwise."""
    return MEMBER.search(guard.source) is not None or guard.source.endswith("._modules")


def are_of_parameters(guards: Sequence[Guard]) -> bool:
    """Tell whether one of them is on the size of a parameter, as torch's hint says."""
    return any(_STATIC_PARAMETER in switch for guard in guards for switch in guard.switches)


def _may_help(cause: Cause, name: str, *, guess: bool) -> bool:
    """Tell whether a setting that torch names for the guard was tried, or else may help by what the
    text of the program says."""
    return _switch(cause, name) != "" and (name in cause.tried or guess)


def _switch(cause: Cause, name: str) -> str:
    """The setting as torch names it for this guard; empty where it does not."""
    switches = (switch for guard in cause.guards for switch in guard.switches)
    return next((switch for switch in switches if name in switch), "")


def _is_torchs_optimizer(cause: Cause) -> bool:
    """Whether a step of torch's own was compiled; AdamW has that of Adam."""
    owner = cause.function.rpartition(".")[0].rpartition(".")[2]
    return cause.library and owner in _OPTIMIZERS


def _partial(cause: Cause) -> re.Match[str] | None:
    return _PARTIAL.fullmatch(cause.guard.source)


def keys_of(guards: Sequence[Guard]) -> list[str]:
    """The keys that a dict (or set) has in some calls and not in others, as code."""
    expected = (guard.expected.removeprefix("no ") for guard in guards)
    return list(dict.fromkeys(key for key in expected if re.fullmatch(r"'\w+'|\d+", key)))


def _all_options(cause: Cause) -> str:
    keys = keys_of(cause.guards)
    if cause.is_rest:
        return f"{cause.short}({', '.join(('...', *(f'{key[1:-1]}=...' for key in keys)))})"
    return f"{cause.name} = {{{', '.join(f'{key}: ...' for key in keys)}, **{cause.name}}}"


def _fewest_dimensions(cause: Cause) -> int:
    """Of what came, if the first graph was compiled for them and others have more; else 0."""
    ranks = [rank for guard in cause.guards for rank in (guard.expected, guard.actual)]
    if cause.guard.kind != "rank" or not all(rank.isdecimal() for rank in ranks):
        return 0
    fewest = int(cause.guard.expected)
    return fewest if fewest == min(map(int, ranks)) else 0


def _aliased(cause: Cause) -> list[str]:
    """The arguments that are one tensor with the first that torch lists."""
    found = aliased(cause.guard)
    return found[1:] if all(name.isidentifier() for name in found) else []


def _setter(cause: Cause) -> str:
    """One for each setting that changed, if all of them have one."""
    calls = [_SETTERS.get(name, "") for name in cause.guard.source.split()]
    return "; ".join(calls) if all(calls) else ""


def _is_text_or_enum(guard: Guard) -> bool:
    return guard.kind == "identity" or (
        guard.kind == "value" and _TEXT.fullmatch(guard.expected) is not None
    )


def _is_kept(cause: Cause) -> bool:
    """Whether a number is no argument: a global, a float attribute, or a variable of a function
    around."""
    if _ATTRIBUTE.fullmatch(cause.name):
        return bool(cause.guard.variable or _FLOAT.fullmatch(cause.guard.expected))
    is_variable = cause.name.isidentifier() and (_is_global(cause) or cause.is_argument is False)
    return is_variable or (bool(cause.guard.variable) and not _is_global(cause))


def _is_passed(cause: Cause) -> bool:
    """Whether it has a name in front of the call."""
    return bool(cause.is_argument) and cause.name.isidentifier()


# The first that holds is offered.
REMEDIES: tuple[Remedy, ...] = (
    Remedy(
        name="models_in_turn",
        holds=lambda c: c.in_turn and _is_of_the_model(c.guard),
        code="torch.compiler.reset()",
        effect=(
            "before each new model: what is compiled for the earlier ones counts against one limit"
        ),
    ),
    Remedy(
        name="int_attribute",
        # torch names the switch of a module that is a global, too; tried: it changes nothing there
        holds=lambda c: _may_help(c, STATIC_INT, guess=not _is_global(c) and c.only_computed),
        code=lambda c: _switch(c, STATIC_INT),
        effect="",
    ),
    Remedy(
        name="float_lr",
        # an optimizer of the owner's own may need a number
        holds=lambda c: is_number(c.guard) and c.key == "lr" and _is_torchs_optimizer(c),
        code="lr=torch.tensor(...)",
        effect=(
            "where the optimizer is made, without foreach=True: a scheduler then changes a tensor, "
            'and no guard depends on its value; to set it by hand, group["lr"].fill_(...)'
        ),
    ),
    Remedy(
        name="cycled_betas",
        holds=lambda c: c.key in ("betas", "momentum") and bool(c.scheduler),
        code="{c.scheduler}(..., cycle_momentum=False)",
        effect="if the training may do without: {c.key} then stays a constant",
    ),
    Remedy(
        name="partial",
        holds=lambda c: _partial(c) is not None and _is_tensor_instead(c),
        code="functools.partial(..., {c.name}=torch.tensor({c.name}))",
        effect=f"{_DOUBLE}: torch takes a number in a partial for a constant",
    ),
    Remedy(
        name="kept_number",
        holds=lambda c: _is_kept(c) and _is_tensor_instead(c),
        code="{c.name} = torch.tensor(...)",
        effect=(
            f"wherever it gets a number, {_DOUBLE}: torch takes one from outside the arguments for "
            "a constant, a tensor is an input"
        ),
    ),
    Remedy(
        name="number_or_tensor",
        holds=lambda c: c.of_many_types and c.only_computed and _is_passed(c),
        code="{c.short}(..., {c.name}=torch.as_tensor({c.name}, dtype=...))",
        effect="a tensor of one dtype in every call: torch compiles for each type",
    ),
    Remedy(
        name="float_argument",
        holds=lambda c: _is_passed(c) and _is_tensor_instead(c),
        code="{c.short}(..., {c.name}=torch.tensor({c.name}))",
        effect=f"{_DOUBLE}: it is an input of the graph, a number is a constant of it",
    ),
    Remedy(
        name="compared_argument",
        holds=lambda c: (
            bool(c.comparison and c.is_argument)
            and _is_text_or_enum(c.guard)
            and (c.values > 2 or c.guard.kind == "identity")  # of an object torch names no value
        ),
        code="{c.short}(..., {c.comparison})",
        effect="pass the answer instead of {c.name}: two graphs at most",
    ),
    Remedy(
        name="function_argument",
        holds=lambda c: c.guard.kind == "identity" and bool(c.is_argument and c.returned),
        code="{c.name}({c.short}(...))",
        effect="call it on the result, outside: the compiled part no longer depends on {c.name}",
    ),
    Remedy(
        name="changing_options",
        holds=lambda c: (
            c.guard.kind == "keys"
            and not c.guard.text.startswith(_OF_A_SET)
            and bool(keys_of(c.guards))
            and _is_passed(c)
        ),
        code=_all_options,
        effect=lambda c: (
            f"{'' if c.is_rest else 'before the call: '}every key each time, if the values are "
            "tensors and there is one that changes no result"
        ),
    ),
    Remedy(
        name="list_that_only_grows",
        holds=lambda c: c.guard.kind == "length" and c.only_grows,
        code="{c.name}.append(...)",
        effect=(
            "after the call of {c.short}, with what it returns (return it, too, where it does "
            "not): it compiles for each length of a list that it appends to"
        ),
    ),
    Remedy(
        name="shared_wrapper",
        holds=lambda c: (
            c.wraps and 0 < c.modules <= _MOST_ENTRIES and c.guard.source.partition(".")[0] == "fn"
        ),
        code=lambda c: _limit(c.modules),
        effect=lambda c: _ONE_EACH.format(c.modules),
    ),
    Remedy(
        name="swapped_rank",
        holds=lambda c: _may_help(
            c, _STATIC_PARAMETER, guess=not c.wraps and len(sizes_of(c.guards)) > 2
        ),
        code=lambda c: _switch(c, _STATIC_PARAMETER),
        effect="",
    ),
    Remedy(
        name="made_static",
        holds=lambda c: c.not_static != "" and _is_size(c) and not c.is_constant,
        code="{c.not_static}",
        effect=(
            "without dynamic=False torch makes a size dynamic once it changes, unless a line needs "
            f"it as a number; compiling for it may take many times as long; {NOT_TRIED}"
        ),
    ),
    Remedy(
        name="static_sizes",
        holds=lambda c: (
            not c.modules
            and _is_size(c)
            and not are_of_parameters(c.guards)
            and not c.with_parameter
            and not c.is_constant
            # what is compiled for a range of sizes already is split by the range, not by a size
            and not any(map(is_condition, c.guards))
            and not (c.wraps and c.guard.source.startswith(_OF_WRAPPER))
            and c.tried.get(ALL_SIZES.name, "nobody tried") != ""
        ),
        code=_sizes_made_dynamic,
        effect=_effect_of_marks,
    ),
    Remedy(
        name="constant_sizes",
        holds=lambda c: (
            c.is_constant and c.constant_at is not None and _is_passed(c) and not c.wraps
        ),
        code="{c.name} = torch.nn.functional.pad({c.name}, ...)",
        effect=(
            "before the call, and the same for what has its size, to few sizes, if what is added "
            "changes no result: line {c.constant_at.line} makes a constant of each size, so it "
            "cannot be dynamic"
        ),
    ),
    Remedy(
        name="strides",
        holds=lambda c: c.guard.kind == "stride" and _is_passed(c),
        code="{c.name} = {c.name}.contiguous()",
        effect=(
            "before the call, if it only reads {c.name}: one layout for all calls; where that "
            "dimension has size 1, .clone(memory_format=torch.contiguous_format)"
        ),
    ),
    Remedy(
        name="dtype",
        holds=lambda c: c.guard.kind == "dtype" and bool(c.dtype) and _is_passed(c),
        code="{c.name} = {c.name}.to(torch.{c.dtype})",
        effect=(
            f"before the call, {_ALIKE}, if it only reads {{c.name}} and its results may have this "
            "dtype, too: one for all calls"
        ),
    ),
    Remedy(
        name="grad_mode",
        holds=lambda c: c.guard.kind == "grad-mode" and not other_settings(c.guard),
        code="with torch.no_grad(): ...",
        effect=(
            "or torch.inference_mode(), as in the loop: one such call of its sizes before it, in "
            "eval() if that is how it is called, and one with gradients, if these may draw random "
            "numbers and count in a BatchNorm: both graphs are then made in the warm-up"
        ),
    ),
    Remedy(
        name="training",
        holds=lambda c: (
            c.guard.kind == "value" and c.guard.source.endswith(".training") and bool(c.switched)
        ),
        code="{c.switched}.eval()",
        effect=(
            "before the loop, with one call, and then {c.switched}.train() with another, if that "
            "may draw random numbers and count in a BatchNorm: both graphs are then made in the "
            "warm-up"
        ),
    ),
    Remedy(
        name="requires_grad",
        holds=lambda c: c.guard.kind == "requires-grad" and _is_passed(c),
        code="{c.name} = {c.name}.detach()",
        effect="before the call, if no gradient of {c.name} is needed: one graph for all",
    ),
    Remedy(
        name="device",
        holds=lambda c: c.guard.kind == "device" and bool(c.device) and _is_passed(c),
        code='{c.name} = {c.name}.to("{c.device}")',
        effect=f"before the call, {_ALIKE}, if it only reads {{c.name}}: one device for all calls",
    ),
    Remedy(
        name="rank",
        holds=lambda c: _fewest_dimensions(c) > 1 and _is_passed(c),
        code=lambda c: f"{c.name} = {c.name}.flatten(0, {c.name}.ndim - {_fewest_dimensions(c)})",
        effect=lambda c: (
            f"before the call, {_ALIKE}, if no operation is along the first {c.name}.ndim - "
            f"{_fewest_dimensions(c) - 1} dimensions; results have fewer dimensions, too, "
            "and another size compiles once more"
        ),
    ),
    Remedy(
        name="none",
        holds=lambda c: (
            c.guard.kind == "type"
            and c.guard.expected == "None"
            and _is_passed(c)
            and not any("<class" in each.expected + each.actual for each in c.guards)
        ),
        code="{c.name} = ... if {c.name} is None else {c.name}",
        effect="before the call: in place of None a tensor that changes no result, if there is one",
    ),
    Remedy(
        name="aliased",
        holds=lambda c: bool(_aliased(c)),
        code=lambda c: "; ".join(f"{name} = {name}.clone()" for name in _aliased(c)),
        effect=lambda c: (
            "before the call, where it is also passed as another argument, if the function only "
            f"reads {' and '.join(_aliased(c))}"
        ),
    ),
    Remedy(
        name="autocast",
        holds=lambda c: is_switched(c.guard) and not other_settings(c.guard),
        code="with torch.autocast(...): {c.short}(...)",
        effect="around every call, or around none: torch compiles for each",
    ),
    Remedy(
        name="threads",
        holds=lambda c: c.guard.kind == "global-state" and bool(_setter(c)),
        code=_setter,
        effect="once, before the first call: torch compiles for each setting",
    ),
    Remedy(
        name="two_backends",
        holds=lambda c: c.guard.kind == "backend",
        code="compiled = torch.compile({c.short}, ...)",
        effect=(
            "once for each object, and all with the same arguments: torch compiles for each backend"
        ),
    ),
)
