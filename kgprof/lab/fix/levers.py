"""The levers that `kgprof fix` tries, and what each makes of a program's text."""

import ast
from collections.abc import Callable, Collection, Iterator

from kgprof import model as m
from kgprof.lab.fix.edits import Edit, Program
from kgprof.lab.fix.lever import Lever
from kgprof.wording import clause

_TextEdit = Callable[[str, m.StepFacts], str | None]
_FUSED = ("Adam", "AdamW", "SGD", "Adagrad")
# of torch.compile, and of a module's method of that name
_OF_COMPILE = frozenset(
    ("fullgraph", "dynamic", "backend", "mode", "options", "disable", "recompile_limit")
)
_NOTHING, _ROUNDING = m.Changes.NOTHING, m.Changes.ROUNDING
_WORKERS = 4
_BEFORE_WORKERS = 5  # arguments of a DataLoader that may be given without a name
_OF_CACHE = frozenset(("past_key_values", "use_cache", "cache_config"))  # of generate()
_LOWER_PRECISION = ("set_float32_matmul_precision", "allow_tf32", "fp32_precision")


def levers(facts: m.StepFacts) -> tuple[Lever, ...]:
    """All levers for one program, most promising first; the ladder moves some to the end."""
    settings = tuple(_setting(name, value) for name, value in facts.settings)
    return (*_FIRST, *_COMPILING, *settings, *_OTHERS)


def _edit(edits: Callable[..., list[Edit]], *given: str) -> _TextEdit:
    """Make a change of a text out of changes of a program."""

    def edit(text: str, facts: m.StepFacts) -> str | None:
        program = Program(text)
        return program.edited(edits(program, facts, *given))

    return edit


# ---------------------------------------------------------------- torch.compile


def _compiling(program: Program, names: Collection[str]) -> Iterator[ast.expr]:
    """The calls that compile something: ``torch.compile(...)``, with ``partial`` too, the method of
    a module among ``names``; and the decorator that is no call."""
    for node in program.nodes:
        match node:
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr="compile"), args=[]) as call):
                known = _OF_COMPILE.issuperset(each.arg for each in call.keywords)
                if known and _first_name(call.func) in names:
                    yield call
            case ast.Call(func=function, args=args):
                is_partial = program.dotted(function) == "functools.partial"
                if program.dotted(args[0] if is_partial and args else function) == "torch.compile":
                    yield node
            case ast.FunctionDef(decorator_list=decorators):
                named = (each for each in decorators if not isinstance(each, ast.Call))
                yield from (each for each in named if program.dotted(each) == "torch.compile")


def _first_name(node: ast.expr) -> str:
    """The name that an attribute is of, in the end."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _is_compiled(program: Program, name: str) -> bool:
    """Tell whether a call that compiles something names it, or a part of it."""
    nodes = (node for site in _compiling(program, (name,)) for node in ast.walk(site))
    return any(isinstance(node, ast.Name) and node.id == name for node in nodes)


def _argument(
    program: Program, facts: m.StepFacts, name: str, value: str, *others: str
) -> list[Edit]:
    """Add an argument to what compiles by Inductor, unless it has one of others."""
    edits = []
    for site in _compiling(program, facts.modules):
        keywords = site.keywords if isinstance(site, ast.Call) else []
        given = {each.arg: ast.unparse(each.value) for each in keywords}
        by_inductor = given.get("backend", "'inductor'") == "'inductor'"
        if by_inductor and given.keys().isdisjoint((*others, "disable")):
            edits += program.argument(site, name, value)
    return edits


def _eager_modules(facts: m.StepFacts) -> tuple[str, ...]:
    return tuple(name for name in facts.modules if name not in facts.compiled_modules)


def _is_of_own_class(program: Program, name: str) -> bool:
    """Tell whether a call of a class is all that makes a module, as far as its name shows, and none
    of torch's: the method ``compile`` of those compiles nothing (torch 2.13)."""
    calls = [call.func for call in program.values(name) if isinstance(call, ast.Call)]
    classes = [each for each in calls if ast.unparse(each).rpartition(".")[2][:1].isupper()]
    owners = [program.dotted(each) for each in calls]
    return bool(classes) and not any(owner.startswith("torch.nn.") for owner in owners)


def _compile_model(program: Program, facts: m.StepFacts, mode: str = "") -> list[Edit]:
    edits = []
    for name in _eager_modules(facts):
        if _is_compiled(program, name):
            continue
        code = f"{name}.compile({mode})"
        if not _is_of_own_class(program, name):
            code = f"{name} = {program.written('torch.compile')}({name}{clause(', ', mode)})"
        edits += program.after_assignment(name, code)
    return edits


def _compile_step(program: Program, facts: m.StepFacts) -> list[Edit]:
    if any(_compiling(program, facts.modules)):
        return []
    return program.wrapped(facts.step, program.written("torch.compile"), inside=True)


def _compile_optimizer(program: Program, facts: m.StepFacts) -> list[Edit]:
    """Add the line after a scheduler is made, which takes the method apart."""
    edits = []
    for name, _ in facts.optimizers:
        if not _is_compiled(program, name):
            code = f"{name}.step = {program.written('torch.compile')}({name}.step)"
            edits += program.after_assignment(name, code, used=True)
    return edits


def _fused_optimizer(program: Program, facts: m.StepFacts) -> list[Edit]:
    edits = []
    for call in program.calls(*_FUSED):
        if {"foreach", "differentiable"}.isdisjoint(each.arg for each in call.keywords):
            edits += program.argument(call, "fused", "True")
    return edits


_IN_BUCKETS = """

def in_buckets(model, rows=32):
    def padded(x):
        more = (0, 0) * (x.dim() - 1) + (0, -len(x) % rows)
        return model({}(x, more))[: len(x)]

    return padded


"""


def _in_buckets(program: Program, facts: m.StepFacts) -> list[Edit]:
    """Wrap what is compiled, has a name and is only called, with one argument."""
    if "in_buckets" in program.text:
        return []
    sites = list(_compiling(program, facts.modules))
    function = _IN_BUCKETS.format(program.written("torch.nn.functional.pad"))
    edits: list[Edit] = []
    for node in program.tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if value in sites:
                is_module = name in facts.compiled_modules
                if edits or not _takes_one_argument(program, name, value, is_module=is_module):
                    continue
                what = name
                if is_module:  # it stays one
                    what = f"{name}.forward"
                code = f"{function}{what} = in_buckets({what})"
                edits += program.after_assignment(name, code)
    return edits


def _takes_one_argument(program: Program, name: str, site: ast.expr, *, is_module: bool) -> bool:
    """Tell whether each call of a name has one argument; other uses than in ``site`` are a module's
    alone."""
    inside = set(ast.walk(site))
    uses = [node for node in program.nodes if isinstance(node, ast.Name) and node.id == name]
    read = [use for use in uses if isinstance(use.ctx, ast.Load) and use not in inside]
    calls = {node.func: node for node in program.nodes if isinstance(node, ast.Call)}
    called = [calls[use] for use in read if use in calls]
    if len(called) < len(read) and not is_module:
        return False
    return bool(called) and all(len(each.args) == 1 and not each.keywords for each in called)


# ---------------------------------------------------------------- a line of settings


def _once(program: Program, facts: m.StepFacts, dotted: str, code: str, *others: str) -> list[Edit]:
    """Add a line that begins with a part of torch after the imports, unless the program names it or
    one of others."""
    if program.mentions(dotted.rpartition(".")[2], *others):
        return []
    return program.after_imports(program.written(dotted) + code)


def _setting(name: str, value: bool) -> Lever:
    dotted = f"torch._dynamo.config.{name}"
    return Lever(
        id=f"setting-{name}",
        says=f"sets {dotted} to {value}",
        changes=_ROUNDING,
        wanted=lambda facts: "a message of torch asks for this setting",
        edit=_edit(_once, dotted, f" = {value}"),
    )


def _threads(program: Program, facts: m.StepFacts, number: str = "") -> list[Edit]:
    """Say how many threads an operator has, or change that number; by itself, as many as there are
    cores."""
    wanted = number or str(facts.cores)
    match [call.args for call in program.calls("set_num_threads")]:
        case []:
            name = program.written("torch.set_num_threads")
            return program.after_imports(f"{name}({wanted})")
        case [[ast.Constant(value=int(old)) as its]] if str(old) != wanted:
            return [program.replaced(its, wanted)]
    return []


# ---------------------------------------------------------------- the program's own objects


def _channels_last(program: Program, facts: m.StepFacts) -> list[Edit]:
    if program.mentions("channels_last"):
        return []
    code = f"to(memory_format={program.written('torch.channels_last')})"
    edits = []
    for name in facts.modules:
        edits += program.after_assignment(name, f"{name}.{code}")
    return edits


def _loader_workers(program: Program, facts: m.StepFacts) -> list[Edit]:
    edits = []
    for call in program.calls("DataLoader"):
        given = {each.arg: each.value for each in call.keywords}
        match given.get("num_workers"):
            case None if len(call.args) <= _BEFORE_WORKERS:
                edits += program.argument(call, "num_workers", str(_WORKERS))
            case ast.Constant(value=0) as none:
                edits.append(program.replaced(none, str(_WORKERS)))
    return edits


def _static_cache(program: Program, facts: m.StepFacts) -> list[Edit]:
    edits = []
    for node in program.nodes:
        match node:
            case ast.Call(func=ast.Attribute(attr="generate") as method, keywords=keywords):
                is_free = _OF_CACHE.isdisjoint(each.arg for each in keywords)
                if is_free and _first_name(method) in facts.modules:
                    edits += program.argument(node, "cache_implementation", '"static"')
    return edits


def _autocast(program: Program, facts: m.StepFacts) -> list[Edit]:
    if program.mentions("autocast"):
        return []
    dtype = program.written("torch.bfloat16")
    code = f'{program.written("torch.autocast")}("{facts.device}", dtype={dtype})'
    return program.wrapped(facts.step, code)


def _freeze_objects(program: Program, facts: m.StepFacts) -> list[Edit]:
    if program.mentions("freeze"):
        return []
    return program.at_end(f"{program.written('gc.freeze')}()")


# ---------------------------------------------------------------- what speaks for each


def _is_on_cuda(facts: m.StepFacts) -> bool:
    return facts.device == "cuda"


def _said(test: Callable[[m.StepFacts], object], words: str) -> Callable[[m.StepFacts], str]:
    """Give the reason for a lever where a test holds."""

    def wanted(facts: m.StepFacts) -> str:
        return words if test(facts) else ""

    return wanted


def _for_modules(facts: m.StepFacts) -> str:
    names = _eager_modules(facts)
    if facts.frames or not names:
        return ""
    return f"nothing is compiled, and {', '.join(names)} can be"


def _with_graphs(facts: m.StepFacts) -> str:
    if not _is_on_cuda(facts):
        return ""
    return _for_modules(facts)


def _for_optimizers(facts: m.StepFacts) -> str:
    names = [name for name, _ in facts.optimizers]
    return f"nothing compiles what {', '.join(names)} computes" if names else ""


def _has_fused_form(facts: m.StepFacts) -> bool:
    return any(kind in _FUSED for _, kind in facts.optimizers)


def _can_freeze(facts: m.StepFacts) -> bool:
    return bool(facts.frames) and not facts.returns_gradient and not facts.optimizers


_FIRST = (
    Lever(
        id="loader-workers",
        says=f"loads batches in {_WORKERS} processes beside the program",
        changes=m.Changes.MEANING,
        wanted=_said(
            lambda facts: 0 in facts.loaders and facts.cores > 1,
            "a DataLoader loads in the program's own process",
        ),
        edit=_edit(_loader_workers),
        starts_workers=True,
    ),
    Lever(
        id="static-cache",
        says="generates with a cache of one size; on a GPU transformers compiles for it",
        changes=_ROUNDING,
        wanted=_said(lambda facts: facts.generates, "a model of transformers can make text"),
        edit=_edit(_static_cache),
    ),
    Lever(
        id="buckets",
        says="pads rows to a multiple of 32, so that sizes share a CUDA graph; the gain ends when "
        "the program as it is has seen all its sizes",
        changes=_ROUNDING,
        wanted=_said(
            lambda facts: facts.graphs_late,
            "torch recorded CUDA graphs in the second half of the steps, too",
        ),
        edit=_edit(_in_buckets),
    ),
    Lever(
        id="channels-last",
        says="stores the weights of convolutions with the channels last",
        changes=_ROUNDING,
        wanted=_said(lambda facts: facts.has_convolution, "the model has convolutions"),
        edit=_edit(_channels_last),
    ),
)

_COMPILING = (
    Lever(
        id="reduce-overhead",
        says="compiles with CUDA graphs",
        changes=_NOTHING,
        wanted=_said(_is_on_cuda, "one launch of a CUDA graph replaces those of the kernels in it"),
        edit=_edit(_argument, "mode", '"reduce-overhead"', "options"),
    ),
    Lever(
        id="compile-model",
        says="compiles the model",
        changes=_ROUNDING,
        wanted=_for_modules,
        edit=_edit(_compile_model),
    ),
    Lever(
        id="compile-with-graphs",
        says="compiles the model, with CUDA graphs",
        changes=_ROUNDING,
        wanted=_with_graphs,
        edit=_edit(_compile_model, 'mode="reduce-overhead"'),
    ),
    Lever(
        id="compile-step",
        says="compiles the step",
        changes=_ROUNDING,
        wanted=_said(
            lambda facts: facts.step and not facts.frames and not facts.optimizers,
            "nothing is compiled, and the step has no optimizer",
        ),
        edit=_edit(_compile_step),
    ),
    Lever(
        id="compile-optimizer",
        says="compiles the optimizer's step",
        changes=_ROUNDING,
        wanted=_for_optimizers,
        edit=_edit(_compile_optimizer),
    ),
    Lever(
        id="fused-optimizer",
        says="updates the parameters in one kernel",
        changes=_ROUNDING,
        wanted=_said(_has_fused_form, "torch has a fused form of the optimizer"),
        edit=_edit(_fused_optimizer),
    ),
    Lever(
        id="dynamic",
        says="compiles once for all sizes",
        changes=_ROUNDING,
        wanted=_said(
            lambda facts: facts.frames_late, "torch compiled in the second half of the steps, too"
        ),
        edit=_edit(_argument, "dynamic", "True"),
    ),
)

_OTHERS = (
    Lever(
        id="cudnn-benchmark",
        says="tries cuDNN's ways to compute a convolution, and keeps the fastest",
        changes=_ROUNDING,
        wanted=_said(
            lambda facts: _is_on_cuda(facts) and facts.has_convolution,
            "the model has convolutions, and runs on a GPU",
        ),
        edit=_edit(_once, "torch.backends.cudnn.benchmark", " = True"),
    ),
    Lever(
        id="tf32",
        says="multiplies float32 matrices in TF32",
        changes=m.Changes.MEANING,
        wanted=_said(
            lambda facts: _is_on_cuda(facts) and facts.has_float32,
            "the model has float32 parameters, and runs on a GPU",
        ),
        edit=_edit(_once, "torch.set_float32_matmul_precision", '("high")', *_LOWER_PRECISION),
    ),
    Lever(
        id="bf16-autocast",
        says="computes in bfloat16 where torch.autocast does",
        changes=m.Changes.MEANING,
        wanted=_said(
            lambda facts: facts.step and facts.has_float32, "the model has float32 parameters"
        ),
        edit=_edit(_autocast),
    ),
    Lever(
        id="one-thread",
        says="computes an operator in one thread",
        changes=_ROUNDING,
        wanted=_said(
            lambda facts: facts.threads > 1 and not _is_on_cuda(facts),
            "an operator shares its work among threads",
        ),
        edit=_edit(_threads, "1"),
    ),
    Lever(
        id="all-threads",
        says="computes an operator in as many threads as there are cores",
        changes=_ROUNDING,
        wanted=_said(
            lambda facts: facts.threads < facts.cores and not _is_on_cuda(facts),
            "an operator has fewer threads than there are cores",
        ),
        edit=_edit(_threads),
    ),
    Lever(
        id="gc-freeze",
        says="keeps the garbage collector from what the module made",
        changes=_NOTHING,
        wanted=_said(
            lambda facts: facts.collections_late,
            "the collector looked at all that torch and the program made, also in the last steps",
        ),
        edit=_edit(_freeze_objects),
    ),
    Lever(
        id="freezing",
        says="computes with the weights as constants",
        changes=_ROUNDING,
        wanted=_said(_can_freeze, "torch compiled the program, and it has no optimizer"),
        edit=_edit(_once, "torch._inductor.config.freezing", " = True"),
    ),
    Lever(
        id="max-autotune-no-cudagraphs",
        says="tries several kernels for each matrix product, and keeps the fastest",
        changes=_ROUNDING,
        wanted=_said(lambda facts: facts.frames, "torch compiled a part of the program"),
        edit=_edit(_argument, "mode", '"max-autotune-no-cudagraphs"', "options"),
        patience_s=75.0,
    ),
)
