"""What the rounds of one run come to: a median each, and the spread over them."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from kgprof import model as m
from kgprof.measures.times import spread, whole_unit_time

ONE_ROUND = m.Skipped(reason="TIMING ran in one process; --rounds N runs it in N")
NO_EVALUATION = m.Skipped(reason="the workload has no whole evaluation")
COLD = m.Skipped(reason="no other round was timed, and the first one's caches were cold")


def rounds(run: m.RunRecord) -> m.Rounds | m.Skipped:
    """Skipped for one round, and where the first one was not timed."""
    if not run.rounds:
        return ONE_ROUND
    if isinstance(run.timing, m.Skipped):
        return run.timing
    warm = [record.measured for record in run.rounds if isinstance(record.measured, m.TimedRound)]
    timed = [run.timing, *(found.timing for found in warm)]
    each = [[us for group in timing.step_us for us in group] for timing in timed]
    step_us = tuple(median(steps) for steps in each if steps)
    evaluation_s = tuple(median(timing.evaluation_s) for timing in timed if timing.evaluation_s)
    # By the units of the first round: each evaluation is the whole of the same work, and each step as much.
    per_unit = whole_unit_time(evaluation_s, run)
    if not evaluation_s and run.unit.per_step:
        per_unit = _over([us / 1000 / run.unit.per_step for us in step_us], run.unit.time)
    return m.Rounds(
        asked=len(run.rounds) + 1,
        numbers=(1, *(record.number for record in run.rounds if isinstance(record.measured, m.TimedRound))),
        step_us=step_us,
        evaluation_s=evaluation_s,
        warm_first_call_s=tuple(found.first_call_s for found in warm),
        step=_over(step_us, "us"),
        evaluation_time=_over(evaluation_s, "s") if evaluation_s else NO_EVALUATION,
        per_unit=per_unit,
        warm_first_call=_over([found.first_call_s for found in warm], "s") if warm else COLD,
        graphs_from_cache=tuple(found.graphs_from_cache for found in warm),
        graphs_compiled=tuple(found.graphs_compiled for found in warm),
        machine=_machine([timing.machine for timing in timed]),
        lost=tuple(
            f"round {record.number} "
            + ("ended without writing its times" if record.exit.outcome == m.Outcome.OK else record.exit.words)
            for record in run.rounds
            if isinstance(record.measured, m.Skipped)
        ),
    )


def _over(samples: Sequence[float], unit: str) -> m.Spread | m.Skipped:
    return spread(samples, unit=unit, measured_in=m.PassName.TIMING)


def _machine(speeds: Sequence[m.MachineSpeed | m.Skipped]) -> m.MachineSpeed | m.Skipped:
    """A median of each round, or why one of them has none."""
    known = [speed for speed in speeds if isinstance(speed, m.MachineSpeed)]
    if len(known) < len(speeds):
        return next(speed for speed in speeds if isinstance(speed, m.Skipped))
    if not all(speed.host_us and speed.device_us for speed in known):
        return m.Skipped(reason="a round of TIMING has no check of the machine's speed")
    return m.MachineSpeed(
        host_us=tuple(median(speed.host_us) for speed in known),
        device_us=tuple(median(speed.device_us) for speed in known),
    )
