"""The runs by the time that ranks them: what they have in common, over all processes where each run has several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgspec import structs

from kgprof import model as m
from kgprof.measures import times
from kgprof.measures.times import PER_EVALUATION, PER_STEP, Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """The runs by the time that ranks them, the fastest first."""

    unit: Unit
    in_rounds: bool  # over all rounds, which every run has several of; else over one process each
    runs: tuple[tuple[m.RunReport, m.Spread], ...]


def ranked(runs: Sequence[m.RunReport]) -> Ranked | None:
    """None where nothing ranks them: no time, or steps that are not the same work."""
    sound = [run for run in runs if not run.results_differ]
    per_step = timed(sound, lambda run: run.step)
    for whole, unit in whole_jobs(sound):
        if len(whole) > 1 or (whole and len(per_step) == 1):
            return _in_order(whole, unit)
    stepped = [run for run, _ in per_step]
    if not stepped or all(run.script is not None and run.script.is_one_window for run in stepped):
        return None
    alike = not any(map(evaluates, stepped)) or len({run.key.strategy for run in stepped}) == 1
    return _in_order(per_step, PER_STEP) if alike else None


def whole_jobs(sound: Sequence[m.RunReport]) -> tuple[tuple[list[tuple[m.RunReport, m.Spread]], Unit], ...]:
    return (
        *((timed(sound, counted_evaluation), times.per_unit(run.unit)) for run in sound[:1]),
        (timed(sound, uncounted_evaluation), PER_EVALUATION),
    )


def _in_order(found: Sequence[tuple[m.RunReport, m.Spread]], unit: Unit) -> Ranked:
    rounds = [(run, time) for run, _ in found if (time := over_rounds(run, unit)) is not None]
    in_rounds = len(rounds) == len(found)
    pairs = sorted(rounds if in_rounds else found, key=lambda pair: pair[1].median)
    return Ranked(unit=unit, in_rounds=in_rounds, runs=tuple(pairs))


def with_speedups(runs: Sequence[m.RunReport]) -> tuple[m.RunReport, ...]:
    """Where the runs are ranked by several processes, each speed-up is of these too: one figure everywhere."""
    found = ranked(runs)
    base = next((time for run, time in found.runs if run.is_baseline), None) if found and found.in_rounds else None
    if found is None or base is None:
        return tuple(runs)
    own = {run.key: time for run, time in found.runs if isinstance(run.speedup, m.Speedup) and time.minimum > 0}
    made = []
    for run in runs:
        if (time := own.get(run.key)) is not None:
            what = "step" if found.unit is PER_STEP else "whole evaluation"
            speedup = m.Speedup(
                ratio=base.median / time.median,
                low=base.minimum / time.maximum,
                high=base.maximum / time.minimum,
                basis=f"{what}, {min(base.samples, time.samples)} processes",
            )
            run = structs.replace(run, speedup=speedup)
        made.append(run)
    return tuple(made)


def counted_evaluation(run: m.RunReport) -> m.Spread | m.Skipped:
    """What a unit of a whole evaluation takes; steps are compared as they stand."""
    return run.per_unit if run.counts_units else m.Skipped(reason="the evaluation counts no units of work")


def uncounted_evaluation(run: m.RunReport) -> m.Spread | m.Skipped:
    """Of a workload whose evaluation does not say how much work it is: then the whole of it is what compares."""
    return m.Skipped(reason="the evaluation counts its units of work") if run.counts_units else run.evaluation_time


def evaluates(run: m.RunReport) -> bool:
    """Whether it has, or should have, a whole evaluation."""
    return isinstance(run.evaluation_time, m.Spread) or not isinstance(run.evaluation, m.Skipped)


def timed(
    runs: Sequence[m.RunReport], quantity: Callable[[m.RunReport], m.Spread | m.Skipped]
) -> list[tuple[m.RunReport, m.Spread]]:
    return [(run, time) for run in runs if isinstance(time := quantity(run), m.Spread)]


def over_rounds(run: m.RunReport, unit: Unit) -> m.Spread | None:
    """The same quantity over several processes; None where there are too few."""
    if isinstance(run.rounds, m.Skipped):
        return None
    found = {PER_EVALUATION: run.rounds.evaluation_time, PER_STEP: run.rounds.step}.get(unit, run.rounds.per_unit)
    return found if isinstance(found, m.Spread) and found.samples >= times.FEWEST_TO_RANK else None
