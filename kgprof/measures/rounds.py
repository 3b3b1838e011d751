"""What the rounds of one run come to: a median each, and the spread over them."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from kgprof import model as m
from kgprof.measures.times import spread, whole_unit_time

ONE_ROUND = m.Skipped(reason="TIMING ran in one process; --rounds N runs it in N")
NO_EVALUATION = m.Skipped(reason="the workload has no whole evaluation")
_ENTRIES, _FEWEST_ENTRIES = 60, 12  # of steps over time: of a run, and of one of many processes
_BINS = 30
_SLICES = 100  # of an evaluation, evenly: a report holds them of every round
_FAR = 3.0  # times p10 to p90 above the median: from here on a step is no part of the bins
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
        in_turn=tuple(taken_in_turn(timing) for timing in timed),
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


def taken_in_turn(timing: m.TimingPass) -> m.TakenInTurn | None:
    if not timing.slice_steps:
        return None
    size, slices = timing.slice_steps, []
    for group in timing.step_us:
        apart = size * max(1, -(-len(group) // (size * _SLICES)))
        slices += [group[at : at + size] for at in range(0, len(group), apart)]
    return m.TakenInTurn(step_us=tuple(_digits(median(each)) for each in slices), evaluation_s=timing.evaluation_s)


def step_series(run: m.RunRecord) -> m.StepSeries | m.Skipped:
    """Of all processes that were timed; what lies far above the others is counted beside the bins."""
    if isinstance(run.timing, m.Skipped):
        return run.timing
    timed = {1: run.timing}
    timed |= {
        record.number: found.timing for record in run.rounds if isinstance(found := record.measured, m.TimedRound)
    }
    entries = max(_FEWEST_ENTRIES, _ENTRIES // len(timed))
    processes, every = [], list[float]()
    for number, timing in timed.items():
        steps = [us for group in timing.step_us for us in group]
        time = _over(steps, "us")
        if isinstance(time, m.Skipped):
            continue
        every += steps
        size = -(-len(steps) // entries)
        parts = [sorted(steps[at : at + size]) for at in range(0, len(steps), size)]
        processes.append(
            m.ProcessSteps(
                number=number,
                time=time,
                evaluations=tuple(len(group) for group in timing.step_us),
                every=size,
                low_us=tuple(_digits(part[0]) for part in parts),
                middle_us=tuple(_digits(median(part)) for part in parts),
                high_us=tuple(_digits(part[-1]) for part in parts),
            )
        )
    whole = _over(every, "us")
    if isinstance(whole, m.Skipped):
        return whole
    top = min(whole.maximum, whole.median + _FAR * (whole.p90 - whole.p10)) if whole.p90 > whole.p10 else whole.maximum
    width = (top - whole.minimum) / _BINS or 1.0
    counts = [0] * _BINS
    for us in every:
        if us <= top:
            counts[min(int((us - whole.minimum) / width), _BINS - 1)] += 1
    above = len(every) - sum(counts)
    return m.StepSeries(
        processes=tuple(processes),
        time=whole,
        bins_from_us=whole.minimum,
        bin_us=width,
        counts=tuple(counts),
        above=above,
    )


def _digits(us: float) -> float:
    """With the five digits that a picture can show."""
    return float(f"{us:.5g}")


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
