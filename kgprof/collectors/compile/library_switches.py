"""What the owner of a program can do about a finding whose cause lies in a library, whose code he
cannot change.

That is the library's argument (library_switches.toml), or the line that calls it; else the finding
is a note.
"""

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from importlib import resources
from pathlib import PurePosixPath
from typing import Any

import msgspec
from msgspec.structs import replace

from kgprof import model as m
from kgprof.collectors.compile import recompiles, skipped_frames
from kgprof.collectors.compile.graph_breaks import break_records
from kgprof.collectors.compile.tried_settings import (
    COMMENT,
    TriedSettings,
    in_vain,
    is_tried,
    where_it_helped,
)
from kgprof.collectors.fingerprint import line_of
from kgprof.reading.code_to_write import fitted
from kgprof.reading.dynamo_settings import switches_in
from kgprof.reading.evidence import Evidence
from kgprof.reading.project import STANDARD_LIBRARY
from kgprof.reading.source_text import SourceText, user_function
from kgprof.wording import clause


class Switch(m.Model):
    """What to write where a line of a library syncs or breaks the graph; the fields are explained
    in the table."""

    packages: tuple[str, ...]
    file: str
    functions: tuple[str, ...]
    words: tuple[str, ...] = ("",)
    below: bool = False
    fix: str = ""
    no_fix: str = ""  # why nothing can be written


_TABLE = tomllib.loads(
    resources.files(__package__).joinpath("library_switches.toml").read_text(encoding="utf-8")
)
READS, BREAKS = (
    tuple(msgspec.convert(each, Switch) for each in _TABLE[kind]) for kind in ("read", "break")
)
TRAINERS = _TABLE["trainer"]
GUARDS = _TABLE["guard"]
_OF_GUARDS = tuple(rule.id for rule in recompiles.RULES)
_OF_EAGER_FRAMES = tuple(rule.id for rule in skipped_frames.RULES)
CAUSES = {(each["gb_id"], each.get("operator", "")): each["fix"] for each in _TABLE["cause"]}
_ON_PURPOSE, _WARNS = "torch._dynamo.graph_break", "_warnings.warn"
_LEVELS = ("critical", "debug", "error", "exception", "fatal", "info", "log", "warn", "warning")
_WRITES = frozenset(f"Logger.{method}" for method in _LEVELS)
# which it adds to logging.Logger
_OF_TRANSFORMERS = frozenset(
    f"Logger.{method}" for method in ("info_once", "warning_advice", "warning_once")
)
# a layer's own work: nobody can call it elsewhere or less often
_OF_MODULES = ("forward", "__call__")
_BREAK = "no known argument avoids this break: compile the parts around it"
_INTENDED = (
    "the library breaks the graph here on purpose; what stands before and behind it is compiled"
)
_PASSES = (
    "the library passes non_blocking on: give it non_blocking=True where the program can, and "
    "memory that is pinned"
)
_OF_A_LIBRARY = "a library's line does this"
_OUTSIDE = "outside of what is compiled, with all that needs its result, gradients too"
_AROUND = (
    "outside of what is compiled: enter the context around the call of it, if all of that may run "
    "in it"
)
_ENTERS = ("__enter__", "enter_context")
_SCALARS = "capture_scalar_outputs"
_LOSS = "(...).backward()"
_OPERATOR = "Higher Order Operator"
_RNN = "allow_rnn"
_DYNAMIC = "capture_dynamic_output_shape_ops"
_SIZE_BY_VALUES = "GB0036"
# torch has a kernel for their sizes, so that the switch helps (tried with 2.13); not of ctc_loss
_TRACED = frozenset(
    f"aten.{name}"
    for name in (
        *("nonzero.default", "masked_select.default", "bincount.default"),
        *("_unique2.default", "unique_dim.default", "unique_consecutive.default"),
        "repeat_interleave.Tensor",
    )
)
_PRINTS = "reorderable_logging_functions"
# What torch can print later: its classes, as it names them in the context of the break.
_PRINTED_CLASS = r"<class '[\w.]+\.(?:Tensor|Constant|StringFormat)Variable'>"
_PRINTED = re.compile(rf"builtin print \[(?:(?:, )?{_PRINTED_CLASS})*\] False")
_READ_TOO = (
    "and print tensors themselves, not what this line reads from them: the line then breaks no "
    "graph, and prints at the end of one"
)
_BRANCHES = "GB0170"  # on a value
_COUNTED = (
    "for _ in range(N): ...  # in place of the while, if the number of turns is known; else "
    "torch.while_loop"
)
_CHECKED = (
    "in place of the if and its raise, if nobody catches that: the check is then a part of the "
    "graph, and raises RuntimeError"
)
_ASSERTED = (
    "one assert for each condition: each is then a part of the graph, and raises RuntimeError"
)
_COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_OF_AN_IF = ("torch.cond", "if tensor_cond", "branchless", "`or`/`and`")
# With it, the call of a compiled module with a backward hook raises: "BackwardState requires
# CompiledAutograd".
_RAISES = "compiled_autograd"
# whether it is one, torch does not say; and a setting with which a generator may give other values
_NOT_SURE = ("If ", "Set `torch._dynamo.config.enable_faithful_generator_behavior")
_OF_BACKWARD_HOOK = "GB0083"
_HOOKED = "the module has a backward hook{}: without it the graph does not break here"
# not of nn.Sequential and the like: there torch compiles the module's __call__, with all hooks
_AS_A_WHOLE = ", and a hook on what is compiled as a whole does not break it"
_SUPPRESSED = (
    "torch._dynamo.config.suppress_errors = True  # and no fullgraph=True: what cannot be compiled "
    "then runs in eager"
)


def with_switches(evidence: Evidence, findings: list[m.Finding]) -> list[m.Finding]:
    """The findings, with what their owner can do where the rule's remedy is none; a note where that
    is nothing."""
    trainers: dict[Any, Mapping[str, str]] = {
        run.key: _of_trainer(run.record.kernel_origins) for run in evidence.runs
    }
    compiled = {
        (trace.run, frame.file, _last(user_function(frame.function)))
        for trace in evidence.compilers_and_cut_off
        for each in trace.compiled
        if (frame := each.frame) is not None and trace.source.project.holds(frame.file)
    }
    sources: dict[Any, SourceText] = {run.key: run.source for run in evidence.runs}
    lines = Counter(_line(one.run, one.location) for one in findings if one.refusal is not None)
    # A function that is compiled by itself after its caller fell back has no caller in its stack.
    decided = {
        _line(one.run, one.location)
        for one in findings
        if (source := sources.get(one.run)) is not None and _is_decided_by(source, one)
    }
    trials: dict[Any, TriedSettings] = {
        trace.run: TriedSettings(trace) for trace in evidence.compilers if trace.setting_trials
    }
    prints = set()
    if any("print" in one.names for one in findings):
        prints = _printed_now(evidence)
    mended = []
    for one in findings:
        line = _line(one.run, one.location)
        new = _mended(
            one,
            sources.get(one.run),
            trainers.get(one.run, {}),
            compiled,
            now=line in prints,
            tested=line in decided,
            trials=trials.get(one.run),
        )
        if lines[line] > 1:
            new = _beside_another(new)
        mended.append(new)
    return mended


def _line(run: m.RunKey | None, place: m.Location | None) -> tuple[m.RunKey | None, object]:
    return run, line_of(place)


def _tried(
    trials: TriedSettings | None, finding: m.Finding, doubted: Collection[str]
) -> Mapping[str, str]:
    """What the settings that were tried do for a break; empty for other findings."""
    if trials is None or finding.refusal is None:
        return {}
    falls_back = finding.rule in _OF_EAGER_FRAMES
    return trials.of_break(finding, falls_back=falls_back, doubted=doubted)


def _printed_now(evidence: Evidence) -> set[tuple[m.RunKey | None, object]]:
    """The lines whose print is given what torch cannot print later, in one compilation at least."""
    return {
        _line(trace.run, record.site)
        for trace in evidence.compilers_and_cut_off
        for record in break_records(trace)
        if record.cause.operator == "print" and not _PRINTED.fullmatch(record.cause.context)
    }


def _beside_another(finding: m.Finding) -> m.Finding:
    """Two breaks in one line: a print that is put off leaves the other."""
    if _PRINTS not in finding.fix:
        return finding
    return replace(finding, fix=f"{finding.fix.partition('  #')[0]}  # {_READ_TOO}")


def _mended(
    finding: m.Finding,
    source: SourceText | None,
    trainer: Mapping[str, str],
    compiled: Collection[tuple[m.RunKey, str, str]],
    *,
    now: bool = False,
    tested: bool = False,
    trials: TriedSettings | None = None,
) -> m.Finding:
    """``now``: what it prints cannot be printed later; ``tested``: Python needs what it reads."""
    if finding.refusal is not None and finding.no_fix:
        return finding
    if why := _unavoidable(finding):
        return replace(finding, level=m.Level.NOTE, no_fix=why)
    if finding.refusal is not None and finding.refusal.cause.gb_id == _OF_BACKWARD_HOOK:
        no_fix = _HOOKED.format(_registered(source))
        if _is_inside(finding.refusal, finding.run, compiled):
            no_fix += _AS_A_WHOLE
        return replace(finding, no_fix=no_fix)
    place = finding.location
    prints = place is not None and place.text.strip().startswith("print(")  # breaks the graph next
    decides = prints or tested or _in_operator(finding)
    in_graph = source is not None and place is not None and source.flows_into_a_graph(place)
    doubts = {
        # what a library does with the size next is not looked at
        _DYNAMIC: decides or finding.library or _is_never_traced(finding),
        _SCALARS: decides or not in_graph,
        _PRINTS: now,
        _RNN: source is not None and source.packs_sequences,
        _LOSS: place is not None and not _is_of_a_loss(place),
    }
    guessed = [switch for switch, is_doubted in doubts.items() if is_doubted]
    tried = _tried(trials, finding, guessed)
    said = finding.message
    finding = replace(finding, message=said + in_vain(tried, said + finding.detail))
    useless = (
        *(switch for switch in guessed if switch not in tried),  # a trial knows better
        *(name for name, effect in tried.items() if not effect),
    )
    of_trainer = finding.fix and _fits(source, finding, trainer.get(finding.rule, ""))
    # With a setting, what comes next may raise or take minutes to compile: untried, it is torch's
    # own hint.
    known = where_it_helped(_known(finding, source, useless), tried)
    if finding.tried:
        return finding
    fix = known or _of_guard(finding) or of_trainer or finding.fix
    if fix:
        return replace(finding, fix=fix, tried=is_tried(fix, tried))
    if finding.refusal is not None and finding.refusal.cause.gb_id == _BRANCHES:
        finding = _of_branch(finding, source)
    finding = _without_hint(finding, *useless)
    only = (
        source is not None
        and finding.location is not None
        and source.is_all_of_its_function(finding.location)
    )
    return _without_switch(finding, source, compiled, only)


def _is_of_a_loss(place: m.Location) -> bool:
    """Tell a training step's ``loss.backward()`` from one inside of a module or an autograd
    function, or with a gradient of its own."""
    method = user_function(place.function).rpartition(".")[2]
    return place.text.rstrip().endswith(".backward()") and method not in ("forward", "backward")


def _is_decided_by(source: SourceText, finding: m.Finding) -> bool:
    """Tell whether Python needs the value of the line: there, or where functions return it to."""
    place = finding.location
    if place is None:
        return False
    stack = _stack(finding)
    lines = list(map(line_of, stack))
    callers: Sequence[m.Location] = ()
    if line_of(place) in lines:
        callers = stack[: lines.index(line_of(place))]
    for line in (place, *reversed(callers)):
        if source.decides(line):
            return True
        if not source.returns(line):
            return False
    return False


def _stack(finding: m.Finding) -> Sequence[m.Location]:
    if finding.refusal is None:
        return ()
    return finding.refusal.stack


def _registered(source: SourceText | None) -> str:
    """Name the line that registers backward hooks; empty where it is not one line."""
    if source is None or len(source.backward_hooks) != 1:
        return ""
    (line,) = source.backward_hooks
    return f", registered in {PurePosixPath(line.file).name}:{line.line}"


def _is_never_traced(finding: m.Finding) -> bool:
    """Whether the size of an operator's result depends on values, and torch cannot trace it."""
    if finding.refusal is None:
        return False
    cause = finding.refusal.cause
    return cause.gb_id == _SIZE_BY_VALUES and cause.operator not in _TRACED


def _unavoidable(finding: m.Finding) -> str:
    """Why a read of a library's is a part of what it does; empty where the table does not say."""
    line = finding.library
    if finding.reads is None or line is None:
        return ""
    return next((each.no_fix for each in READS if each.no_fix and _is_at(each, line)), "")


def _of_guard(finding: m.Finding) -> str:
    """What a library has against a guard on a part of it that changes from call to call."""
    if finding.library is None or finding.rule not in _OF_GUARDS:
        return ""
    line = ""
    if finding.location is not None:
        line = finding.location.text
    found = (
        each["fix"]
        for each in GUARDS
        if finding.library.package in each["packages"]
        and any(each["source"] in name for name in finding.names)
        and each["calls"] in line
    )
    return next(found, "")


def _of_branch(finding: m.Finding, source: SourceText | None) -> m.Finding:
    """A branch on a value with what suits its own line: torch gives the same hints for each."""
    place = finding.location
    if source is None or place is None or finding.library is not None:
        return finding
    branch = source.condition(place)
    if isinstance(branch, ast.While):
        return replace(_without_hint(finding, *_OF_AN_IF), fix=_COUNTED)
    asserted = source.asserted(place)
    if asserted is not None:
        return _of_assert(finding, asserted)
    if branch is None:
        return finding
    if not any(isinstance(node, ast.BoolOp) for node in ast.walk(branch.test)):
        finding = _without_hint(finding, "`or`/`and`")
    leaves = (ast.Return, ast.Break, ast.Continue, ast.Raise)
    branches = (*branch.body, *branch.orelse)
    if any(isinstance(node, leaves) for each in branches for node in ast.walk(each)):
        finding = _without_hint(finding, *_OF_AN_IF)
    only_raises = len(branch.body) == 1 and isinstance(branch.body[0], ast.Raise)
    if source.at(place.file, branch.lineno).text.lstrip().startswith("elif"):
        return finding  # asked in some calls only
    wanted = _opposite(branch.test)
    if not only_raises or branch.orelse or not wanted or _is_caught(finding, source):
        return finding
    return replace(finding, fix=f'torch._assert_async({wanted}, "...")  # {_CHECKED}')


def _is_caught(finding: m.Finding, source: SourceText) -> bool:
    """Tell whether an exception of the line meets a handler in a function that leads to it."""
    places = filter(None, (finding.location, *_stack(finding)))
    return any(map(source.has_handler, places))


def _of_assert(finding: m.Finding, asserted: ast.Assert) -> m.Finding:
    """Split the conditions of an ``and``: torch keeps an assert on one comparison in its graph."""
    finding = _without_hint(finding, *_OF_AN_IF)
    test = asserted.test
    if not (isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And)):
        return finding
    if not all(_is_a_bool(condition) for condition in test.values):
        return finding
    code = "; ".join(f"assert {ast.unparse(condition)}" for condition in test.values)
    return replace(finding, fix=f"{code}  # {_ASSERTED}")


def _opposite(test: ast.expr) -> str:
    """A condition of torch's bools turned round; of a number, ``~`` would be something else."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand) if _is_a_bool(operand):
            return ast.unparse(operand)
    if _is_a_bool(test):
        return f"torch.logical_not({ast.unparse(test)})"
    return ""


def _is_a_bool(test: ast.expr) -> bool:
    match test:
        case ast.Compare(ops=[operator]):
            return isinstance(operator, _COMPARISONS)
        case ast.Call(func=ast.Attribute(attr="any" | "all")):
            return True
    return False


def _in_operator(finding: m.Finding) -> bool:
    """Whether the line lies in what an operator such as an autograd.Function is made of. A number
    that is captured there is a symbol that it does not return, and the compiler raises."""
    return finding.refusal is not None and finding.refusal.cause.kind.startswith(_OPERATOR)


def _written_by(finding: m.Finding, called: str) -> str:
    """The function that writes a message; ``logging.info`` asks its root logger before it calls
    it, where torch stops."""
    if called == _WARNS:
        return "warnings.warn"
    line = finding.library
    of_transformers = line is not None and line.package == "transformers"
    if called in _WRITES or (of_transformers and called in _OF_TRANSFORMERS):
        return f"logging.{called}"
    # a method ("self.") is compiled by itself, behind a break at the call of it
    logs = line is not None and line.file.endswith("logging/__init__.py")
    if line is None or not logs or line.function not in _LEVELS:
        return ""
    if "self." in line.text:
        return f"logging.Logger.{line.function}"
    return f"logging.{line.function}"


def _known(finding: m.Finding, source: SourceText | None, useless: Collection[str]) -> str:
    """``useless``: settings with which the next line breaks the graph, or the call raises."""
    way = finding.reads or finding.refusal
    if way is None:
        return ""
    cause = m.TorchCause("")
    table = READS
    if finding.refusal is not None:
        cause = finding.refusal.cause
        table = (*BREAKS, *READS)
    if writes := _written_by(finding, cause.operator):  # in whatever package
        return (
            f"torch._dynamo.config.ignore_logging_functions.add({writes})  # compiled "
            "code leaves the message out; torch 2.11 logs an error of its own at each compilation"
        )
    places = [
        (line, here)
        for line, here in ((finding.library, True), *((line, False) for line in way.chain))
        if line
    ]
    at = (
        (one, line)
        for one in table
        for line, here in places
        if (here or one.below) and _is_at(one, line, finding.library)
    )
    fixes = (one.fix.replace("{function}", _last(line.function)) for one, line in at)
    fitting = (_fits(source, finding, fix) for fix in fixes)
    of_library = next(filter(None, fitting), "")
    return of_library or _of_cause(cause, in_library=finding.library is not None, useless=useless)


def _of_cause(cause: m.TorchCause, *, in_library: bool, useless: Collection[str]) -> str:
    """The table's, else the setting that torch's own hint names. Not one that only moves the break
    to the next line, and not one with which the call raises."""
    fix = ""
    if not in_library:
        fix = CAUSES.get((cause.gb_id, cause.operator)) or CAUSES.get((cause.gb_id, ""), "")
    fix = fix or _hinted(cause)
    if any(switch in fix.partition(COMMENT)[0] for switch in useless):
        return ""
    return fix


def _hinted(cause: m.TorchCause) -> str:
    """Name the setting that torch hints at, as code; empty where it may be for another case."""
    sure = (hint for hint in cause.hints if not hint.startswith(_NOT_SURE))
    switches = (switch for hint in sure for switch in switches_in(hint))
    return next((switch for switch in switches if _RAISES not in switch), "")


def _without_hint(finding: m.Finding, *switches: str) -> m.Finding:
    """Drop torch's hints at what only moves the break, or ends the program."""
    if finding.refusal is None:
        return finding
    cause = finding.refusal.cause
    hints = tuple(hint for hint in cause.hints if not any(each in hint for each in switches))
    refusal = replace(finding.refusal, cause=replace(cause, hints=hints))
    return replace(finding, refusal=refusal)


def _is_at(switch: Switch, line: m.PackageLine, reads: m.PackageLine | None = None) -> bool:
    """``reads``: the innermost line, where that is another one."""
    here = line.package in switch.packages and line.file.endswith(switch.file)
    return (
        here
        and _last(line.function) in switch.functions
        and any(word in (reads or line).text for word in switch.words)
    )


def _fits(source: SourceText | None, finding: m.Finding, fix: str) -> str:
    """The code, where it fits the finding's line; of an unknown program as it is."""
    if source is None:
        return fix
    return fitted(source, finding, fix)


# ---------------------------------------------------------------- where no switch is known


def _without_switch(
    finding: m.Finding,
    source: SourceText | None,
    compiled: Collection[tuple[m.RunKey, str, str]],
    only: bool,
) -> m.Finding:
    """A sync, a break or a failure in a library: the owner's own line, if that asks for it, else
    nothing of his. ``only``: nothing of its function would be left to compile without it."""
    way, library, place = finding.reads or finding.refusal, finding.library, finding.location
    if way is None or library is None or finding.level is m.Level.NOTE:
        return finding
    own = ""
    if place is not None:
        own = place.text.partition("  #")[0].strip()
    if own.count("(") > own.count(")"):
        own += " ...)"  # the call goes on in the next line
    unnamed = library.function.endswith(">")  # a generator expression: nobody calls it
    of_modules = any(_last(line.function) in _OF_MODULES for line in (library, *way.chain))
    direct = own and not of_modules and not unnamed
    if isinstance(way, m.Reads):
        no_fix = _OF_A_LIBRARY
        if "non_blocking" in library.text:
            no_fix = _PASSES
        return replace(finding, level=m.Level.NOTE, no_fix=no_fix)
    inside = _is_inside(way, finding.run, compiled)
    wanted = way.cause.operator == _ON_PURPOSE
    where = _OUTSIDE
    if any(_last(line.function) in _ENTERS for line in (library, *way.chain)):
        where = _AROUND
    moved = f"{own}  # {where}"
    may_move = inside and own and not only and not wanted
    if may_move and (direct or finding.level is m.Level.ERROR) and _fits(source, finding, moved):
        return replace(finding, fix=moved)
    if finding.level is m.Level.ERROR:
        return replace(finding, fix=_SUPPRESSED)
    if library.package == STANDARD_LIBRARY:
        return finding  # the rule's remedy: the project's own line can stand elsewhere
    no_fix = f"{_BREAK}{clause('; torch hints at ', _hinted(way.cause))}"
    if wanted:
        no_fix = _INTENDED
    return replace(finding, level=m.Level.NOTE, no_fix=no_fix)


def _is_inside(
    way: m.Refusal, run: m.RunKey | None, compiled: Collection[tuple[m.RunKey, str, str]]
) -> bool:
    """Tell whether the project's own code that leads to the line was compiled."""
    return any((run, at.file, _last(at.function)) in compiled for at in way.stack)


def _last(function: str) -> str:
    return function.rpartition(".")[2]


def _of_trainer(origins: m.KernelOrigins | m.Skipped) -> Mapping[str, str]:
    """The arguments of the library that takes this run's training steps."""
    files = {line.file for origin in getattr(origins, "origins", ()) for line in origin.lines}
    its = (
        one["fixes"]
        for one in TRAINERS
        if any(part in file for part in one["files"] for file in files)
    )
    return next(its, {})
