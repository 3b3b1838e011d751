"""What torch's recompile limit did to a function: how many of its later calls ran eagerly.

What happens after the limit leaves no record at all. Where torch compiles the callable itself, the
calls of it that ran no graph were counted. What it calls behind a graph break is told by the
graphs: in a call with fewer runs than before the limit, some of it ran eagerly or was not called.
"""

from collections import Counter
from collections.abc import Sequence

from kgprof import model as m
from kgprof.collectors.compile.compilations_by_function import (
    FunctionCompilations,
    is_refused,
    runs_of,
)
from kgprof.collectors.compile.guard_rejections import Rejections
from kgprof.collectors.compile.guard_words import in_words
from kgprof.collectors.guard_text import Guard
from kgprof.reading import compiled_callables
from kgprof.reading.structured_trace import Compiled, RunTrace


class LimitReached(m.Model):
    """The first call in which torch refused to compile a function once more, and those since."""

    call: int
    rejected: tuple[Guard, ...]  # what that call failed on, of the newest entry first
    eager_calls: int | m.Skipped = 0  # calls since then in which no compiled code of it ran
    eager_steady: int | m.Skipped = 0  # of these, those after warm-up
    # Of compiled callables: their own calls since then, whichever ran; None where ``eager_calls``
    # are of the workload.
    calls_since: int | None = None
    eager_names: str = ""  # which of several modules ran eagerly
    # modules that share the code object, if one entry for each would be enough for all of them
    modules: int = 0
    idle_calls: int = 0  # all calls of the workload since then, if no graph of it ran in any
    fix: str = ""

    @property
    def guard(self) -> Guard | None:
        """The first that failed, if torch gave a reason."""
        return next(iter(self.rejected), None)

    @property
    def words(self) -> str:
        if self.guard is None:
            return "torch gave no reason"
        return in_words(self.guard)


def limit_of(function: FunctionCompilations, rejections: Rejections) -> LimitReached | None:
    if not function.refused:
        return None
    refused = function.refused[0]
    rejected = rejections.get(refused.compile_id, ())
    own = _callables_at_limit(function.trace, refused, function.compiled)
    if own:
        return _of_callables(function.trace, refused, rejected, own)
    return _of_a_part(function.trace, refused, rejected)


def _callables_at_limit(
    trace: RunTrace, refused: Compiled, compiled: Sequence[Compiled]
) -> tuple[m.CompiledCallable, ...]:
    """The compiled callables whose own code object reached the limit."""
    for each in (refused, *compiled):
        if each.frame is not None and each.frame_id == refused.frame_id:
            called = compiled_callables.of_code(trace, each.frame)
            return tuple(each for each in called if not each.compiled_before)
    return ()


def _of_callables(
    trace: RunTrace,
    refused: Compiled,
    rejected: tuple[Guard, ...],
    own: Sequence[m.CompiledCallable],
) -> LimitReached:
    eager: Counter[int] = Counter()  # by call of the workload
    since = 0
    ran_eagerly = []
    for called in own:
        own_eager = _eager_since(called, refused.call)
        eager.update(own_eager)
        since += compiled_callables.calls(called, refused.call)
        if own_eager:
            ran_eagerly.append(called)
    names = ""
    if any(called.module for called in ran_eagerly):
        names = compiled_callables.named(ran_eagerly)
    return LimitReached(
        call=refused.call,
        rejected=rejected,
        eager_calls=eager.total(),
        eager_steady=compiled_callables.counted_since(eager, trace.steady_from),
        calls_since=since,
        eager_names=names,
        modules=modules_with_room(own, refused.call),
    )


def _eager_since(called: m.CompiledCallable, limit_call: int) -> dict[int, int]:
    """Its eager calls by call of the workload, without those under a stance and those before the
    limit, of which torch made no graph."""
    eager = Counter(called.eager)
    for stance in called.stances.values():
        eager.subtract(stance)
    return {call: count for call, count in eager.items() if call >= limit_call and count > 0}


def modules_with_room(own: Sequence[m.CompiledCallable], limit_call: int) -> int:
    """How many modules there are, if torch compiled each of them once at most; else 0: room for all
    would not help.

    Where modules are first called after the limit and in the later half of all calls too, the
    program makes new ones, and no number is enough.
    """
    if not all(each.module and len(each.compilations) <= 1 for each in own):
        return 0
    if not any(each.eager and not each.compilations for each in own):
        return 0
    newest = max(min(each.calls, default=0) for each in own)
    last = max(max(each.calls, default=0) for each in own)
    if newest > max(limit_call, last // 2):
        return 0
    return len(own)


def _of_a_part(trace: RunTrace, refused: Compiled, rejected: tuple[Guard, ...]) -> LimitReached:
    """Of a function that only compiled code calls: the calls of the workload in which it ran in
    eager at least once."""
    runs = runs_of(trace, {refused.frame_id})
    usual = _runs_before(runs, refused)
    if isinstance(usual, m.Skipped):
        later = max(0, trace.calls - refused.call - 1)
        is_idle = bool(runs) and _with_fewer(runs, refused.call + 1, trace.calls, 1) == later
        return LimitReached(
            call=refused.call,
            rejected=rejected,
            eager_calls=usual,
            eager_steady=usual,
            idle_calls=is_idle * later,
        )
    since_warmup = max(refused.call, trace.steady_from)
    return LimitReached(
        call=refused.call,
        rejected=rejected,
        eager_calls=_with_fewer(runs, refused.call, trace.calls, usual),
        eager_steady=_with_fewer(runs, since_warmup, trace.calls, usual),
    )


def _with_fewer(runs: Counter[int], first: int, end: int, than: int) -> int:
    """Count the calls from ``first`` up to ``end`` in which it ran less often than that. A program
    may make more calls than fit into memory: those in which it ran are looked at."""
    enough = sum(first <= call < end and count >= than for call, count in runs.items())
    return max(0, end - first) - enough


def _runs_before(runs: Counter[int], refused: Compiled) -> int | m.Skipped:
    """How often it ran compiled in each call before the limit, at least."""
    if not runs:
        return m.Skipped("no graph of it was counted")
    if refused.call <= 0:
        return m.Skipped("not known after a limit in the first call")
    before = [count for call, count in runs.items() if call < refused.call]
    if not before or _with_fewer(runs, min(runs), refused.call, 1):
        return m.Skipped("it does not run in every call")
    return min(before)


def reached_limit(trace: RunTrace, called: m.CompiledCallable) -> bool:
    """Whether KGP104 or KGP105 speaks of its eager calls."""
    refused = (each for each in trace.compiled if is_refused(trace, each))
    return any(called in _callables_at_limit(trace, each, trace.compiled) for each in refused)
