"""Times with their spread, and what they are relative to: another run, or the same run without the instrument."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kgprof import model as m
from kgprof.wording import figure

LOW, HIGH = 0.10, 0.90  # the percentiles that a Spread gives beside the median
FEWEST_FOR_A_RATIO_RANGE = 2  # samples on either side
FEWEST_TO_RANK = 2  # whole evaluations on both sides of a ratio
NOISY = 2.0  # a run whose times vary more, within one process, ranks nothing and is no reason for a finding
STEPS_DIFFER = "there is no evaluation to compare, and strategies differ in work per step"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """How the verdict says a quantity: in ``name``, ``scale`` times the value that was measured."""

    name: str
    scale: float

    def bare(self, value: float) -> str:
        return figure(value * self.scale)

    def say(self, value: float) -> str:
        return f"{self.bare(value)} {self.name}"


PER_EVALUATION = Unit(name="s/evaluation", scale=1.0)
PER_STEP = Unit(name="ms/step", scale=1e-3)


def per_unit(unit: m.WorkUnit) -> Unit:
    return Unit(name=unit.time, scale=1.0)


def spread(samples: Sequence[float], *, unit: str, measured_in: m.PassName) -> m.Spread | m.Skipped:
    """Skipped when there is no sample."""
    if not samples:
        return m.Skipped(reason=f"{measured_in.upper()} has no sample")
    ordered = sorted(samples)
    return m.Spread(
        median=_percentile(ordered, 0.5),
        p10=_percentile(ordered, LOW),
        p90=_percentile(ordered, HIGH),
        minimum=ordered[0],
        maximum=ordered[-1],
        samples=len(ordered),
        unit=unit,
        measured_in=measured_in,
    )


def _percentile(ordered: Sequence[float], fraction: float) -> float:
    """Linear interpolation between the two nearest samples (numpy's default)."""
    position = fraction * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def step_time(timing: m.TimingPass | m.Skipped) -> m.Spread | m.Skipped:
    """Microseconds a step, over the steps of all evaluations together."""
    if isinstance(timing, m.Skipped):
        return timing
    steps = [us for evaluation in timing.step_us for us in evaluation]
    return spread(steps, unit="us", measured_in=m.PassName.TIMING)


def variation(time: m.Spread, unit: Unit) -> float:
    """How many times the short ones the long ones are: p90 over p10 of steps, of which some always are outliers; of
    whole evaluations the extremes."""
    low, high = (time.p10, time.p90) if unit is PER_STEP else (time.minimum, time.maximum)
    return high / low if low > 0 else 1.0


def slow_first_words(ratio: float) -> str:
    return f"the first evaluation took {ratio:.2f} times the median of the others"


def evaluation_time(timing: m.TimingPass | m.Skipped) -> m.Spread | m.Skipped:
    """Seconds a whole evaluation."""
    if isinstance(timing, m.Skipped):
        return timing
    if not timing.evaluation_s:
        return m.Skipped(reason="the workload has no whole evaluation")
    return spread(timing.evaluation_s, unit="s", measured_in=m.PassName.TIMING)


def unit_time(run: m.RunRecord) -> m.Spread | m.Skipped:
    """Milliseconds a unit of work: of whole evaluations, else of steps where each is said to be so many units."""
    if isinstance(run.timing, m.TimingPass) and not run.timing.evaluation_s and run.unit.per_step:
        samples = [us / 1000 / run.unit.per_step for evaluation in run.timing.step_us for us in evaluation]
        return spread(samples, unit=run.unit.time, measured_in=m.PassName.TIMING)
    seconds = run.timing if isinstance(run.timing, m.Skipped) else run.timing.evaluation_s
    return whole_unit_time(seconds, run)


def whole_unit_time(evaluation_s: Sequence[float] | m.Skipped, run: m.RunRecord) -> m.Spread | m.Skipped:
    """Milliseconds a unit, only where the evaluation finished all of them, else the division would flatter."""
    evaluation, unit = run.evaluation, run.unit
    if isinstance(evaluation_s, m.Skipped) or isinstance(evaluation, m.Skipped):
        return m.first_skipped(evaluation_s, evaluation)
    if evaluation.unfinished:
        return m.Skipped(reason=f"{evaluation.unfinished:,} of {evaluation.units:,} {unit.plural} are unfinished")
    if not evaluation.units:
        return m.Skipped(reason=f"the evaluation has no {unit.name}")
    samples = [1000 * seconds / evaluation.units for seconds in evaluation_s]
    return spread(samples, unit=unit.time, measured_in=m.PassName.TIMING)


def throughput(time: m.Spread | m.Skipped, unit: m.WorkUnit) -> m.Spread | m.Skipped:
    """Units a second, from milliseconds a unit: the quickest sample is the highest rate."""
    if isinstance(time, m.Skipped):
        return time
    if time.minimum <= 0:
        return m.Skipped(reason="a measured time is zero, so there is no rate")
    return m.Spread(
        median=1000 / time.median,
        p10=1000 / time.p90,
        p90=1000 / time.p10,
        minimum=1000 / time.maximum,
        maximum=1000 / time.minimum,
        samples=time.samples,
        unit=unit.rate,
        measured_in=time.measured_in,
    )


def speedup(run: m.RunRecord, baseline: m.RunRecord | None, *, results_differ: bool = False) -> m.Speedup | m.Skipped:
    """Against the declared baseline: on whole evaluations where both finished theirs, else on the step.

    On the step only where it is the same work on both sides: for a workload without evaluations, or in one strategy.
    """
    if baseline is None:
        return m.Skipped(reason="no run is declared as the baseline; add --mode eager to compare with eager")
    if run.key == baseline.key:
        return m.Skipped(reason="this run is the baseline")
    if results_differ:
        return m.Skipped(reason="results differ")
    if _whole(run) and _whole(baseline) and _counted(run) == _counted(baseline):
        return _ratio(evaluation_time(baseline.timing), evaluation_time(run.timing), "whole evaluation")
    steps = step_time(baseline.timing), step_time(run.timing)
    evaluated = any(_timed_whole(each) or _counted(each) for each in (run, baseline))
    if evaluated and run.key.strategy != baseline.key.strategy and all(isinstance(time, m.Spread) for time in steps):
        return m.Skipped(reason=STEPS_DIFFER)
    return _ratio(*steps, "step")


def _timed_whole(run: m.RunRecord) -> bool:
    return isinstance(run.timing, m.TimingPass) and bool(run.timing.evaluation_s)


def _whole(run: m.RunRecord) -> bool:
    """Was timed over whole evaluations, none of which is known to have left work undone."""
    return _timed_whole(run) and (isinstance(run.evaluation, m.Skipped) or not run.evaluation.unfinished)


def _counted(run: m.RunRecord) -> bool:
    return isinstance(run.evaluation, m.Evaluation)


def _ratio(baseline: m.Spread | m.Skipped, run: m.Spread | m.Skipped, basis: str) -> m.Speedup | m.Skipped:
    if isinstance(run, m.Skipped):
        return run
    if isinstance(baseline, m.Skipped):
        return m.Skipped(reason=f"the baseline has no time: {baseline.reason}")
    if run.minimum <= 0:
        return m.Skipped(reason="a measured time is zero, so there is no ratio")
    low: float | m.Skipped
    high: float | m.Skipped
    fewest = min(baseline.samples, run.samples)
    if fewest < FEWEST_FOR_A_RATIO_RANGE:
        low = high = m.Skipped(reason=f"n = {fewest}, no spread")
    elif basis == "step":  # steps are many and have outliers, whole evaluations are few
        low, high = baseline.p10 / run.p90, baseline.p90 / run.p10
    else:
        low, high = baseline.minimum / run.maximum, baseline.maximum / run.minimum
    return m.Speedup(ratio=baseline.median / run.median, low=low, high=high, basis=basis)


def observer_costs(run: m.RunRecord) -> tuple[m.ObserverCost, ...]:
    """Median step of each instrumented pass over TIMING's median step; a skipped pass has no row.

    For COMPILE and MEMORY these are the steady calls: what handlers and probes cost once everything is compiled.
    """
    bare = step_time(run.timing)
    costs: list[m.ObserverCost] = []
    for name in m.PASSES:
        steps: Sequence[float] = getattr(run.left_by(name), "watched_us", ())
        if not steps:
            continue
        if isinstance(bare, m.Skipped):
            ratio: float | m.Skipped = m.Skipped(reason=f"TIMING has no step to compare with: {bare.reason}")
        elif bare.median <= 0:
            ratio = m.Skipped(reason="TIMING's median step is zero")
        else:
            ratio = _percentile(sorted(steps), 0.5) / bare.median
        costs.append(m.ObserverCost(observer=name, ratio=ratio, samples=len(steps)))
    return tuple(costs)
