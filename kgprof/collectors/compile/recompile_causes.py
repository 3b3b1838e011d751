"""Which guard made torch compile a function once more, and whether it did so again and again.

    FunctionCompilations ─┐
    Rejections ───────────┴──recompiles_of──► Recompile: the guards that failed, and the cause

torch compiles when every entry of the code object was rejected, for one reason each. Most of these
are about values that were met before: the entries for other values. The cause is what was new.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from kgprof import model as m
from kgprof.collectors.compile.compilations_by_function import FunctionCompilations, is_recompile
from kgprof.collectors.compile.guard_rejections import Rejections
from kgprof.collectors.compile.guard_words import is_returned_by_a_break
from kgprof.collectors.compile.input_sizes import described
from kgprof.collectors.guard_text import OTHER, Guard, is_condition
from kgprof.reading import compiled_callables
from kgprof.reading.source_text import resumed_at
from kgprof.reading.structured_trace import Compiled, RunTrace, frame_id

# A guard's kind, source and dimension.
_Subject = tuple[str, str, int | None]
_MODES = ("grad-mode", "autocast", "global-state", "backend")  # of guards


class Recompile(m.Model):
    """One compilation that replaced nothing but was added, since every entry there was had been
    rejected."""

    compile_id: str
    call: int
    guard: Guard  # the cause
    rejected: tuple[Guard, ...]  # of all entries, newest first
    call_site: m.Location | None  # the project's line that called
    duration_s: float | m.Skipped
    # the same guards of the same code failed in no other call, and for no other value
    once: bool = False
    begins: bool = False  # it is part of the first calls of its own module, however late they came
    used: m.Location | None = None  # the project's line that made the value a constant
    returned_by: m.Location | None = None  # the line of the graph break that returned the value
    fix: str = ""  # what to write so that this guard no longer fails
    words: str = ""  # the guard in a sentence

    @property
    def case(self) -> tuple[object, ...]:
        """What is the same when it is compiled again for the same: its code object and guards."""
        failed = frozenset((cause_of(guard), _size_class(guard)) for guard in self.rejected)
        return frame_id(self.compile_id), failed


def recompiles_of(function: FunctionCompilations, rejections: Rejections) -> Iterator[Recompile]:
    """Yield the recompiles of a function, as far as they are known without advice."""
    trace = function.trace
    causes = _Causes(trace, rejections)
    for compiled in function.recompiled:
        rejected = rejections.get(compiled.compile_id, ())
        guard = causes.first_of(compiled.frame_id, rejected)
        yield Recompile(
            compile_id=compiled.compile_id,
            call=compiled.call,
            guard=guard or _without_a_reason(compiled, knows_resets=trace.knows_resets),
            rejected=rejected,
            call_site=trace.source.innermost(compiled.stack[:-1]),
            duration_s=_duration_s(compiled),
            begins=compiled_callables.begins_with(trace, compiled),
            returned_by=_break_before(trace, compiled, rejected),
        )


def _duration_s(compiled: Compiled) -> float | m.Skipped:
    if compiled.metrics.get("duration_us") is None:
        return m.Skipped("torch gave no duration")
    return compiled.took_us / 1e6


def _break_before(
    trace: RunTrace, compiled: Compiled, rejected: Sequence[Guard]
) -> m.Location | None:
    """The line of the graph break that returned the value, behind which the code goes on."""
    if compiled.frame is None or not any(map(is_returned_by_a_break, rejected[:1])):
        return None
    line = resumed_at(compiled.frame.function)
    if not line:
        return None
    return trace.source.at(compiled.frame.file, line)


def _without_a_reason(compiled: Compiled, *, knows_resets: bool) -> Guard:
    if is_recompile(compiled):
        return Guard(kind=OTHER, entry="", text="torch gave no reason")
    if compiled.frame is None or not knows_resets:
        text = "it was created again, or torch._dynamo.reset() was called"
        return Guard(kind="identity", entry="", text=text)
    text = "torch takes it for a new function: it was created again"
    return Guard(kind="identity", entry="", source=compiled.frame.function, text=text)


class _Causes:
    """Tells the cause from what failed before for the same code object."""

    def __init__(self, trace: RunTrace, rejections: Rejections) -> None:
        self._met: dict[str, set[object]] = defaultdict(set)  # by code object
        # what each entry was compiled for
        self._values: dict[tuple[str, _Subject], str] = {}
        for entry in {guard.entry for guards in rejections.values() for guard in guards}:
            for source, sizes, _ in described(trace, entry):
                self._values[entry, ("rank", source, None)] = str(len(sizes))
                for dimension, size in enumerate(sizes):
                    self._values[entry, ("size", source, dimension)] = str(size)
        for guards in rejections.values():
            for guard in guards:
                if not is_condition(guard):
                    self._values[guard.entry, guard.subject] = guard.expected

    def first_of(self, code: str, rejected: Sequence[Guard]) -> Guard | None:
        """Return the cause, the first in this order.

        An entry of another mode says no before anything else is asked: those of this mode tell,
        else the one that differs in the fewest settings. A value that an entry was made for is not
        the cause, since that entry failed on another guard. Then comes what no recompile failed on
        before, what no entry before had for this value, and what this entry never failed on.
        """
        met = self._met[code]
        known = {subject for subject in _subjects(rejected) if self._has(subject, rejected)}
        cause = min(
            rejected,
            key=lambda guard: (_modes_apart(guard), guard.subject in known, _newness(guard, met)),
            default=None,
        )
        for guard in rejected:
            met.update(_aspects(guard))
        return cause

    def _has(self, subject: _Subject, rejected: Sequence[Guard]) -> bool:
        """Whether an entry that was made for the value that came said no because of something
        else."""
        came = {_came(guard) for guard in rejected if guard.subject == subject} - {""}
        others = [guard.entry for guard in rejected if guard.subject != subject]
        return any(self._values.get((entry, subject)) in came for entry in others)


def _subjects(guards: Sequence[Guard]) -> set[_Subject]:
    return {guard.subject for guard in guards}


def _aspects(guard: Guard) -> tuple[object, ...]:
    """What may be new about a guard, the most telling first."""
    return (
        guard.subject,
        (guard.subject, guard.expected),
        (guard.subject, guard.entry, "entry"),
    )


def _newness(guard: Guard, met: set[object]) -> int:
    """The position of what is new about it: the smaller, the newer."""
    aspects = _aspects(guard)
    for position, aspect in enumerate(aspects):
        if aspect not in met:
            return position
    return len(aspects)


def _came(guard: Guard) -> str:
    """What failed the guard, as the guard of an entry for that is written; empty if not known."""
    if guard.kind != "keys":
        return guard.actual
    if guard.expected.startswith("no "):
        return guard.expected.removeprefix("no ")
    return f"no {guard.expected}"


def _modes_apart(guard: Guard) -> int:
    """How many settings keep an entry from a call; none where something else does."""
    if guard.kind not in _MODES:
        return 0
    return len(guard.source.split()) or 1


def happened_once(recompiles: Sequence[Recompile]) -> Iterator[bool]:
    """Tell for each whether the same guards of the same code object failed in no other call and, in
    that call, for no second value. A flag has two values, so that each recompile for one happens
    once."""
    times: dict[object, set[tuple[int, str]]] = defaultdict(set)
    for each in recompiles:
        times[each.case].add((each.call, each.guard.actual))
    for each in recompiles:
        is_alone = len(times[each.case]) == 1
        yield bool(each.rejected) and (is_alone or _is_flag(each.guard))


def _is_flag(guard: Guard) -> bool:
    value = guard.expected.removeprefix("no ")
    return guard.kind == "value" and value in ("True", "False")


def _size_class(guard: Guard) -> str:
    """torch compiles for one size, for all from 2 on, for 0 and for 1, in any order, and ends."""
    if guard.kind != "size":
        return ""
    if not guard.expected.isdecimal():
        return "range"
    if int(guard.expected) < 2:
        return guard.expected
    return "one size"


def cause_of(guard: Guard) -> tuple[_Subject, str]:
    """What two guards share that are one cause: each condition on a value is one of its own."""
    if guard.kind == OTHER or is_condition(guard):
        return guard.subject, guard.text
    return guard.subject, ""
