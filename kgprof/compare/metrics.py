"""Every quantity of one run on both sides: times with an interval over rounds, counts and sizes as they stand.

A count that is not there on one side is not observed; it is never taken for zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from msgspec.structs import replace

from kgprof import model as m
from kgprof.collectors import graph_breaks, recompiles, skipped_frames
from kgprof.compare.intervals import (
    BETTER,
    FEWEST_ROUNDS,
    INCONCLUSIVE,
    MOST_ROUNDS,
    SAME,
    WORSE,
    adjusted,
    adjusted_to_settle,
    interval,
    rounds_to_settle,
)
from kgprof.compare.machine import DEVICE, LEAST_DRIFT, rounds_of, told, widened
from kgprof.wording import short

STEP, EVALUATION, CANDIDATE = "step", "evaluation", "ms/candidate"
KERNELS, LAUNCH_CALLS, GRAPH_LAUNCHES = "kernels a step", "launches a step", "CUDA-graph launches a step"
READS, STEPS = "reads a step", "steps an evaluation"
COMPILE, WARM_COMPILE, COMPILATIONS = "first call, cold cache", "first call, warm cache", "compilations"
ALLOCATED, RESERVED, RESIDENT = "peak allocated", "peak reserved", "peak resident"
BREAKS, FRAMES, RECOMPILES = "graph breaks", "skipped frames", "recompiles"
NOT_OBSERVED = "not observed"

# Tolerances in percent, for what moves although the program does not. Of two runs of one program: the caching allocator
# splits blocks in the order in which they come free; a process's resident set has the page cache, the imports and the
# threads' arenas in it; how long g++ and Triton compile depends on whatever else runs on the machine.
TOLERANCES: Mapping[str, float] = {
    ALLOCATED: 1.0,
    RESERVED: 10.0,
    RESIDENT: 15.0,
    COMPILE: 50.0,
    WARM_COMPILE: 50.0,
    # Steps of an evaluation differ in what they meet, and the traced ones are some of them.
    KERNELS: 1.0,
    LAUNCH_CALLS: 1.0,
    GRAPH_LAUNCHES: 1.0,
    READS: 1.0,
}
LEAST: Mapping[str, float] = {  # and below this much, in the metric's unit, a change is none
    ALLOCATED: 2**20,
    RESERVED: 32 * 2**20,
    RESIDENT: 64 * 2**20,
    COMPILE: 1.0,
    WARM_COMPILE: 1.0,
}
FEWER_IS_WORSE = (GRAPH_LAUNCHES,)
ONE_ROUND = "{} timed in one process: without `kgprof profile --rounds 5` on both sides there is no interval"
ONE_ROUND_NOTES = tuple(ONE_ROUND.format(which) for which in ("both sides were", "base was", "head was"))
NO_INTERVAL = m.Skipped(reason="with fewer than two rounds a side there is no interval")
_SITES: Mapping[str, tuple[str, ...]] = {
    BREAKS: (graph_breaks.GRAPH_BREAK.id,),
    FRAMES: (skipped_frames.SKIPPED_FRAME.id,),
    RECOMPILES: tuple(rule.id for rule in recompiles.RULES),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Sides:
    """One run on both sides, and what is known about the work that each of them did."""

    base: m.RunReport
    head: m.RunReport
    settings: tuple[m.SettingChange, ...]  # that make a step another amount of work
    drift: tuple[m.MachineDrift, ...] = ()  # of the machine itself, between base's rounds and head's; empty: not known
    doubt: str = ""  # why times cannot be compared at all (another machine); empty where they can

    @property
    def comparable(self) -> bool:
        return not self.doubt

    @property
    def other_step(self) -> str:
        """Why a step is not the same work on both sides; empty where it is."""
        if self.settings:
            return "; ".join(f"{s.name} {s.base or 'not given'} -> {s.head or 'not given'}" for s in self.settings)
        before, after = self.base.evaluation, self.head.evaluation
        if isinstance(before, m.Evaluation) and isinstance(after, m.Evaluation) and before.steps != after.steps:
            return f"{before.steps:,} -> {after.steps:,} steps an evaluation"
        return ""

    @property
    def other_evaluation(self) -> str:
        """Why a whole evaluation is not; empty where it is."""
        before, after = self.base.evaluation, self.head.evaluation
        if isinstance(before, m.Evaluation) and isinstance(after, m.Evaluation):
            if before.candidates != after.candidates:
                return f"{before.candidates:,} -> {after.candidates:,} candidates"
            if before.unfinished or after.unfinished:
                return f"unfinished candidates: {before.unfinished:,} -> {after.unfinished:,}"
            return ""
        return self.other_step


def metrics(
    sides: Sides, budgets: Mapping[str, float], findings: Sequence[m.ComparedFinding]
) -> tuple[m.ComparedMetric, ...]:
    """``budgets``: percent, by metric."""
    counts = [_count(sides, name, unit, of, budgets) for name, unit, of in _COUNTS]
    sites = [_sites(sides, name, rules, budgets, findings) for name, rules in _SITES.items()]
    found = [*_times(sides, budgets), *sites, *counts]
    return tuple(one for one in found if one is not None)


def plain(value: float | m.Skipped) -> str:
    return NOT_OBSERVED if isinstance(value, m.Skipped) else short(value, 4)


# ---------------------------------------------------------------- times


@dataclass(frozen=True, kw_only=True, slots=True)
class _Time:
    name: str
    unit: str
    medians: Callable[[m.RunReport, m.Rounds], Sequence[float]]  # one a round
    spread: Callable[[m.RunReport], m.Spread | m.Skipped]  # of one process


def _candidate_medians(run: m.RunReport, rounds: m.Rounds) -> Sequence[float]:
    assert isinstance(run.evaluation, m.Evaluation)  # or there is no time a candidate
    return [1000 * seconds / run.evaluation.candidates for seconds in rounds.evaluation_s]


_TIMES = (
    _Time(name=STEP, unit="us", medians=lambda run, rounds: rounds.step_us, spread=lambda run: run.step),
    _Time(
        name=EVALUATION,
        unit="s",
        medians=lambda run, rounds: rounds.evaluation_s,
        spread=lambda run: run.evaluation_time,
    ),
    _Time(name=CANDIDATE, unit="ms/candidate", medians=_candidate_medians, spread=lambda run: run.ms_per_candidate),
)


def _times(sides: Sides, budgets: Mapping[str, float]) -> list[m.ComparedMetric]:
    """The step decides where it is the same work, the evaluation where that is, else the time a candidate."""
    other_work = {STEP: sides.other_step, EVALUATION: sides.other_evaluation}
    on_both = {one.name for one in _TIMES if _samples(one, sides.base) and _samples(one, sides.head)}
    deciding = {name for name in on_both & {STEP, EVALUATION} if not other_work[name]}
    if EVALUATION not in deciding and CANDIDATE in on_both:
        deciding.add(CANDIDATE)
    return [
        _time(one, sides, budgets, other_work=other_work.get(one.name, ""), decides=one.name in deciding)
        for one in _TIMES
    ]


def _time(
    one: _Time, sides: Sides, budgets: Mapping[str, float], *, other_work: str, decides: bool
) -> m.ComparedMetric:
    base, head = _samples(one, sides.base), _samples(one, sides.head)
    budget = budgets.get(one.name, budgets[EVALUATION])
    before, after = _middle(one, sides.base), _middle(one, sides.head)
    metric = m.ComparedMetric(
        name=one.name,
        run=sides.head.key,
        unit=one.unit,
        measured_in=m.PassName.TIMING,
        base=before,
        head=after,
        ratio=_ratio(before, after),
        low=NO_INTERVAL,
        high=NO_INTERVAL,
        base_rounds=len(base),
        head_rounds=len(head),
        budget_percent=budget if decides else None,
        verdict=NOT_OBSERVED,
        decides=decides,
    )
    gone = next((side for side in (before, after) if isinstance(side, m.Skipped)), None)
    if gone is not None:
        return replace(metric, note=gone.reason)
    if other_work:
        return replace(metric, note=f"not the same work on both sides: {other_work}")
    return _judged(metric, base, head, budget / 100, sides)


def _judged(
    metric: m.ComparedMetric, base: Sequence[float], head: Sequence[float], budget: float, sides: Sides
) -> m.ComparedMetric:
    machine = rounds_of(sides.base, base), rounds_of(sides.head, head)
    alone = adjusted(*machine) if sides.drift and all(machine) else None
    found = alone or interval(base, head)
    unseen = [one for one in sides.drift if alone is None or one.loop == DEVICE]
    if found is not None:
        found = widened(found, unseen)
        metric = replace(metric, ratio=found.ratio, low=found.low, high=found.high)
    if alone is not None and alone.machine is not None:
        metric = replace(metric, machine=alone.machine)
    if sides.doubt:
        return replace(metric, verdict=INCONCLUSIVE, note=sides.doubt)
    if found is None:
        few = [words for words, side in (("base", base), ("head", head)) if len(side) < FEWEST_ROUNDS]
        which = "both sides were" if len(few) == 2 else f"{few[0]} was"
        return replace(metric, verdict=INCONCLUSIVE, note=ONE_ROUND.format(which))
    verdict = found.verdict(budget)
    said = list(_of_the_machine(metric, unseen))
    if verdict == SAME and found.low > 1:
        said.append("slower, within the budget")
    if verdict != INCONCLUSIVE:
        return replace(metric, verdict=verdict, note="; ".join(said))
    settle = None
    if not told(unseen):
        settle = adjusted_to_settle(*machine, budget) if alone else rounds_to_settle(base, head, budget)
    said.append(f"the interval straddles the budget; {_need(settle, unseen)}")
    return replace(metric, verdict=verdict, runs_to_settle=settle, note="; ".join(said))


def _need(settle: int | None, unseen: Sequence[m.MachineDrift]) -> str:
    if told(unseen):
        return "both sides recorded again, beside one another in time, may settle it"
    return f"about {settle} rounds a side would settle it" if settle else f"{MOST_ROUNDS} rounds would not settle it"


def _of_the_machine(metric: m.ComparedMetric, unseen: Sequence[m.MachineDrift]) -> Iterator[str]:
    """What a reader who divides head by base must know, and one who wonders at a wide interval.

    ``unseen``: of the drifts those that no slope is known of.
    """
    if not isinstance(metric.machine, m.Skipped) and not isinstance(metric.ratio, m.Skipped):
        share = 100 * (metric.machine - 1)
        if abs(share) >= 100 * LEAST_DRIFT:
            measured = 100 * (metric.ratio * metric.machine - 1)
            yield f"{measured:+.1f} % as measured, {share:+.1f} % of it the machine's own"
    if changed := told(unseen):
        yield f"the interval allows for a {' and '.join(one.loop for one in changed)} that changed by itself"


def round_times(name: str, run: m.RunReport) -> Sequence[float]:
    """As _samples, of one of the times by its name."""
    return next((_samples(one, run) for one in _TIMES if one.name == name), ())


def one_process(name: str, run: m.RunReport) -> m.Spread | m.Skipped:
    """The samples of the first process."""
    return next(one.spread(run) for one in _TIMES if one.name == name)


def _samples(one: _Time, run: m.RunReport) -> Sequence[float]:
    """A median a round, without rounds that of the only process; empty where there is no such time, or one of 0."""
    spread = one.spread(run)
    if isinstance(spread, m.Skipped):
        return ()
    found = one.medians(run, run.rounds) if isinstance(run.rounds, m.Rounds) else (spread.median,)
    return found if all(time > 0 for time in found) else ()


def _middle(one: _Time, run: m.RunReport) -> float | m.Skipped:
    spread, samples = one.spread(run), _samples(one, run)
    if isinstance(spread, m.Skipped):
        return spread
    return geometric_mean(samples) if samples else m.Skipped(reason="no time above 0 was measured")


def _ratio(base: float | m.Skipped, head: float | m.Skipped) -> float | m.Skipped:
    if isinstance(base, m.Skipped):
        return base
    if isinstance(head, m.Skipped):
        return head
    return head / base if base else m.Skipped(reason="base is 0")


# ---------------------------------------------------------------- counts and sizes


def _a_step(of: Callable[[m.KernelBreakdown], int | m.Skipped]) -> Callable[[m.RunReport], float | m.Skipped]:
    """From the traced window to one step of it."""

    def divided(run: m.RunReport) -> float | m.Skipped:
        kernels = run.kernels
        if isinstance(kernels, m.Skipped):
            return kernels
        count = of(kernels)
        if isinstance(count, m.Skipped):
            return count
        return count / kernels.steps if kernels.steps else m.Skipped(reason="the trace marks no steps")

    return divided


def _kernels(kernels: m.KernelBreakdown) -> int:
    return sum(row.count for row in kernels.rows if row.generator != "framework")


def _reads(run: m.RunReport) -> float | m.Skipped:
    return run.memory if isinstance(run.memory, m.Skipped) else run.memory.syncs_per_step


def _peak(of: Callable[[m.MemoryPeaks], int | m.Skipped]) -> Callable[[m.RunReport], float | m.Skipped]:
    def peak(run: m.RunReport) -> float | m.Skipped:
        found = run.memory.peaks if isinstance(run.memory, m.MemorySummary) else run.memory
        return found if isinstance(found, m.Skipped) else of(found)

    return peak


def _first_call(run: m.RunReport) -> float | m.Skipped:
    return run.compile if isinstance(run.compile, m.Skipped) else run.compile.first_call_s


def _compilations(run: m.RunReport) -> float | m.Skipped:
    return run.compile if isinstance(run.compile, m.Skipped) else float(len(run.compile.compilations))


def _warm_first_call(run: m.RunReport) -> float | m.Skipped:
    warm = run.rounds if isinstance(run.rounds, m.Skipped) else run.rounds.warm_first_call
    return warm if isinstance(warm, m.Skipped) else warm.median


def _steps(run: m.RunReport) -> float | m.Skipped:
    return run.evaluation if isinstance(run.evaluation, m.Skipped) else float(run.evaluation.steps)


_COUNTS: tuple[tuple[str, str, Callable[[m.RunReport], float | m.Skipped]], ...] = (
    (STEPS, "steps", _steps),
    (READS, "reads/step", _reads),
    (KERNELS, "kernels/step", _a_step(_kernels)),
    (LAUNCH_CALLS, "launches/step", _a_step(lambda kernels: kernels.launches)),
    (GRAPH_LAUNCHES, "launches/step", _a_step(lambda kernels: kernels.graph_launches)),
    (ALLOCATED, "bytes", _peak(lambda peaks: peaks.allocated_bytes)),
    (RESERVED, "bytes", _peak(lambda peaks: peaks.reserved_bytes)),
    (RESIDENT, "bytes", _peak(lambda peaks: peaks.resident_bytes)),
    (COMPILATIONS, "compilations", _compilations),
    (COMPILE, "s", _first_call),
    (WARM_COMPILE, "s", _warm_first_call),
)
_MEASURED_IN = {
    READS: m.PassName.MEMORY,
    ALLOCATED: m.PassName.MEMORY,
    RESERVED: m.PassName.MEMORY,
    RESIDENT: m.PassName.MEMORY,
    WARM_COMPILE: m.PassName.TIMING,
    STEPS: m.PassName.TIMING,
}
# Metrics that a budget can be put on, in percent of what base has.
BUDGETED = (STEP, EVALUATION, *_SITES, *(name for name, _, _ in _COUNTS))


def _count(
    sides: Sides, name: str, unit: str, of: Callable[[m.RunReport], float | m.Skipped], budgets: Mapping[str, float]
) -> m.ComparedMetric | None:
    """None where neither side can have it: a CPU run has no launches."""
    base, head = of(sides.base), of(sides.head)
    if isinstance(base, m.Skipped) and isinstance(head, m.Skipped):
        return None
    measured_in = _MEASURED_IN.get(name, m.PassName.COMPILE if unit in ("s", "compilations") else None)
    if measured_in is None and isinstance(sides.head.kernels, m.KernelBreakdown):
        measured_in = sides.head.kernels.measured_in
    return _counted(sides.head, name, unit, base, head, budgets, measured_in)


def _sites(
    sides: Sides,
    name: str,
    rules: Sequence[str],
    budgets: Mapping[str, float],
    findings: Sequence[m.ComparedFinding],
) -> m.ComparedMetric | None:
    """Places, of recompiles events; notes are no breaks."""
    if not (isinstance(sides.base.compile, m.CompileSummary) and isinstance(sides.head.compile, m.CompileSummary)):
        return None
    held = [f for f in findings if f.finding.run == sides.head.key and f.finding.rule in rules]
    held = [f for f in held if f.finding.level is not m.Level.NOTE]
    each = name == RECOMPILES
    base = float(sum(f.base_count if each else f.status != "new" for f in held))
    head = float(sum(f.head_count if each else f.status != "fixed" for f in held))
    return _counted(sides.head, name, "events" if each else "sites", base, head, budgets, m.PassName.COMPILE)


def _counted(
    run: m.RunReport,
    name: str,
    unit: str,
    base: float | m.Skipped,
    head: float | m.Skipped,
    budgets: Mapping[str, float],
    measured_in: m.PassName | None,
) -> m.ComparedMetric:
    budget = budgets.get(name)
    gone = next((side for side in (base, head) if isinstance(side, m.Skipped)), None)
    return m.ComparedMetric(
        name=name,
        run=run.key,
        unit=unit,
        measured_in=measured_in,
        base=base,
        head=head,
        ratio=_ratio(base, head),
        budget_percent=budget,
        tolerance_percent=TOLERANCES.get(name),
        verdict=NOT_OBSERVED if gone else _changed(name, base, head, budget or 0.0),  # type: ignore[arg-type]
        decides=budget is not None,
        note=gone.reason if gone else "",
    )


def _changed(name: str, base: float, head: float, budget: float) -> str:
    """``budget``: percent. Within what the metric moves by itself, or may move, it is the same."""
    more = head - base if name not in FEWER_IS_WORSE else base - head
    tolerance = max(TOLERANCES.get(name, 0.0) / 100 * max(base, head), LEAST.get(name, 0.0))
    if abs(more) <= tolerance:
        return SAME
    if more < 0:
        return BETTER
    return WORSE if more > budget / 100 * base else SAME
