"""Where the time of a script went, from its first step to the end of its last one: compiling for
the first time, compiling again, recording CUDA graphs, and the steps themselves."""

import math
from collections import defaultdict

from kgprof import model as m
from kgprof.collectors.compile import recompiles, unrolled_loops
from kgprof.collectors.compile.compilations_by_function import is_recompile
from kgprof.collectors.compile.recompiled_functions import known_s
from kgprof.measures.paid_once import PaidOnce, paid_once
from kgprof.reading import compiled_callables
from kgprof.reading.evidence import Evidence, RunEvidence
from kgprof.reading.structured_trace import Compiled, RunTrace, frame_id


@m.skippable
def whole_run(evidence: Evidence, run: RunEvidence) -> m.WholeRun | m.Skipped:
    """Account for all steps of a script; the shares are disjoint and add up to the whole."""
    paid = m.known(run.once(paid_once))
    trace = run.compiler
    assert trace is not None  # else nothing is known of what was paid once
    first_us, again_us = _compiling(paid, trace)
    total_us = sum(paid.step_us)
    once = {
        m.LimitKind.COMPILING: first_us,
        m.LimitKind.RECOMPILING: again_us,
        m.LimitKind.RECORDING: paid.extra_us(paid.recording),
    }
    kinds = {**once, m.LimitKind.STEPS: total_us - sum(once.values())}
    places = {
        m.LimitKind.COMPILING: _unrolled_at(evidence, run.key),
        m.LimitKind.RECOMPILING: _again_at(evidence, run.key, again_us),
    }
    shares = [
        m.LimitShare(limit, us, us / total_us, location=places.get(limit))
        for limit, us in kinds.items()
        if us > 0
    ]
    shares.sort(key=lambda share: -share.us)
    return m.WholeRun(total_us=total_us, steps=len(paid.step_us), shares=tuple(shares))


def _compiling(paid: PaidOnce, trace: RunTrace) -> tuple[float, float]:
    """Divide the steps that compile: for the first time, and again. By torch's own durations, and
    of no step longer than those, since it may do other work too."""
    first_us = again_us = 0.0
    for step in paid.compiling:
        made = [each for each in trace.compiled if each.call == step]
        whole_us = sum(each.took_us for each in made) or math.inf
        known = [each for each in made if _is_again(trace, each)]
        again = sum(each.took_us for each in known) / whole_us
        extra_us = min(paid.extra_us([step]), whole_us)
        again_us += extra_us * again
        first_us += extra_us * (1 - again)
    return first_us, again_us


def _is_again(trace: RunTrace, compiled: Compiled) -> bool:
    """Whether torch had compiled the same callable before. The second of two modules is compiled
    for the first time, though torch counts it as another entry of the code that they share; what a
    reset dropped is compiled again, though it is no recompile."""
    if compiled.first_since_reset:
        before = (each.frame for each in trace.compiled if each.resets < compiled.resets)
        return compiled.frame in before
    if not is_recompile(compiled):
        return False
    called = compiled_callables.of_compilation(trace, compiled)
    if called is None or not called.module:
        return True
    began = (
        each.compile_id
        for one in compiled_callables.callables(trace)
        if _is_same_module(one, called)
        for each in one.compilations
        if frame_id(each.compile_id) == compiled.frame_id
    )
    return next(began, "") != compiled.compile_id


def _is_same_module(one: m.CompiledCallable, other: m.CompiledCallable) -> bool:
    """Whether it is one, perhaps wrapped anew: its path tells, if it has one."""
    return one.number == other.number or (one.path != "" and one.name == other.name)


def _unrolled_at(evidence: Evidence, run: m.RunKey) -> m.Location | None:
    """Find the loop that took longest to compile."""
    loops = [event for event in evidence.once(unrolled_loops.collect) if event.run == run]
    if not loops:
        return None
    return max(loops, key=lambda event: event.loop_s).location


def _again_at(evidence: Evidence, run: m.RunKey, again_us: float) -> m.Location | None:
    """Find the place whose recompiles took most of the time: the def of a function of the project,
    the line that calls a library's."""
    took_s = defaultdict[m.Location | None, float](float)
    of_run = [event for event in evidence.once(recompiles.collect) if event.run == run]
    for event in of_run:
        for made in event.recompiles:
            place = event.location
            if event.is_of_library:
                place = made.call_site
            took_s[place] += sum(known_s([made]))
    all_s = max(sum(took_s.values()), again_us / 1e6)
    return next((place for place, seconds in took_s.items() if 2 * seconds > all_s), None)
