"""A round is its median; intervals are over rounds; a round that was lost is said and not
counted."""

from __future__ import annotations

from pathlib import Path

import msgspec

from kgprof.analysis import analyse
from kgprof.document import summary
from kgprof.errors import EXIT_OK, EXIT_WORKLOAD
from kgprof.measures.times import COLD, ONE_ROUND, rounds, step_series, taken_in_turn
from kgprof.model import (
    Exit,
    MachineSpeed,
    Omission,
    PassName,
    Profile,
    RoundRecord,
    Rounds,
    RunRecord,
    Skipped,
    Spread,
    StepSeries,
    TakenInTurn,
    TimedRound,
    TimingPass,
)
from kgprof.reading.link_prediction import UNIT
from tests.record import handmade

OK = Exit(outcome="ok")
KILLED = Exit(outcome="killed", message="SIGKILL", during="timing", exit_code=-9)


def round_of(
    number: int, step_us: float, *, candidates_s: tuple[float, ...] = (), warm_s: float = 0.5
) -> RoundRecord:
    """Three steps with this median, and one far above it."""
    steps = (step_us * 0.5, step_us, step_us * 10)
    timing = TimingPass(clock="perf_counter", step_us=(steps,), evaluation_s=candidates_s)
    measured = TimedRound(
        first_call_s=warm_s, graphs_from_cache=2, graphs_compiled=0, timing=timing
    )
    return RoundRecord(number=number, exit=OK, measured=measured)


def lost(number: int, ended: Exit = KILLED) -> RoundRecord:
    return RoundRecord(
        number=number, exit=ended, measured=Skipped(reason=f"the round {ended.words}")
    )


def run_of(*further: RoundRecord, evaluates: bool = False) -> RunRecord:
    absent = Skipped(reason="not here")
    timing = TimingPass(
        clock="perf_counter",
        step_us=((90.0, 100.0, 900.0),),
        evaluation_s=(4.0, 5.0, 9.0) if evaluates else (),
    )
    return RunRecord(
        key=handmade.FUSED,
        exit=OK,
        probe_exit=None,
        compile=absent,
        timing=timing,
        trace=absent,
        host=absent,
        kernels=absent,
        unit=UNIT,
        evaluation=handmade._evaluation() if evaluates else absent,
        log="",
        rounds=further,
    )


def over(unit: str, *ordered: float, median: float, p10: float, p90: float) -> Spread:
    return Spread(
        median=median,
        p10=p10,
        p90=p90,
        minimum=ordered[0],
        maximum=ordered[-1],
        samples=len(ordered),
        unit=unit,
        measured_in=PassName.TIMING,
    )


def test_each_round_counts_as_its_median_and_warm_calls_are_those_of_the_further_ones() -> None:
    run = run_of(round_of(2, 110.0, warm_s=0.5), lost(3), round_of(4, 120.0, warm_s=0.75))

    assert rounds(run) == Rounds(
        asked=4,
        numbers=(1, 2, 4),
        step_us=(100.0, 110.0, 120.0),
        evaluation_s=(),
        warm_first_call_s=(0.5, 0.75),
        step=over("us", 100.0, 110.0, 120.0, median=110.0, p10=102.0, p90=118.0),
        evaluation_time=Skipped(reason="the workload has no whole evaluation"),
        per_unit=Skipped(reason="not here"),
        warm_first_call=over("s", 0.5, 0.75, median=0.625, p10=0.525, p90=0.725),
        graphs_from_cache=(2, 2),
        graphs_compiled=(0, 0),
        lost=("round 3 was killed during TIMING: SIGKILL",),
        in_turn=(None, None, None),
    )


def test_a_round_beside_another_process_keeps_the_median_step_of_each_slice() -> None:
    steps = ((1.0, 3.0, 2.0, 10.0), (5.0, 5.0, 6.0))
    timing = TimingPass(clock="perf_counter", step_us=steps, evaluation_s=(0.1, 0.2), slice_steps=3)
    first, alone = round_of(2, 110.0), round_of(3, 120.0)
    assert isinstance(first.measured, TimedRound)
    beside = msgspec.structs.replace(
        first, measured=msgspec.structs.replace(first.measured, timing=timing)
    )

    found = rounds(run_of(beside, alone))

    assert isinstance(found, Rounds)
    assert found.in_turn == (
        None,
        TakenInTurn(step_us=(2.0, 10.0, 5.0), evaluation_s=(0.1, 0.2)),
        None,
    )


def test_of_long_evaluations_at_most_a_hundred_slices_are_kept_the_same_ones_of_each() -> None:
    evaluation = tuple(float(step) for step in range(1000))
    timing = TimingPass(
        clock="perf_counter",
        step_us=(evaluation, evaluation[:100], ()),
        evaluation_s=(),
        slice_steps=1,
    )

    found = taken_in_turn(timing)

    assert found is not None
    assert found.step_us == (*evaluation[::10], *evaluation[:100])


def test_an_evaluations_candidates_are_divided_by_in_every_round() -> None:
    found = rounds(run_of(round_of(2, 100.0, candidates_s=(6.0, 7.0)), evaluates=True))

    assert isinstance(found, Rounds)
    assert found.evaluation_s == (5.0, 6.5)
    assert found.per_unit == over("ms/candidate", 50.0, 65.0, median=57.5, p10=51.5, p90=63.5)


def test_one_round_and_a_run_that_was_not_timed_have_none() -> None:
    untimed = msgspec.structs.replace(run_of(lost(2)), timing=Skipped(reason="gone"))

    assert rounds(run_of()) == ONE_ROUND
    assert rounds(untimed) == Skipped(reason="gone")


def test_where_every_further_round_was_lost_there_is_no_warm_call() -> None:
    found = rounds(run_of(lost(2)))

    assert isinstance(found, Rounds)
    assert (found.step_us, found.warm_first_call) == ((100.0,), COLD)


# ---------------------------------------------------------------- in the report


def profile_with(folder: Path, *further: RoundRecord) -> Profile:
    """Of a Recording in which nothing else went wrong."""
    recording = handmade.write(folder)
    sound = recording.runs[1]
    plan = msgspec.structs.replace(
        recording.header.plan, runs=(sound.key,), baseline=None, agreement=False
    )
    header = msgspec.structs.replace(recording.header, plan=plan)
    run = msgspec.structs.replace(sound, rounds=further)
    return analyse(msgspec.structs.replace(recording, header=header, runs=(run,)))


def test_a_lost_round_is_said_in_the_verdict_the_omissions_and_the_exit_code(
    tmp_path: Path,
) -> None:
    found = profile_with(tmp_path, round_of(2, 600.0), lost(3))

    assert found.exit_code == EXIT_WORKLOAD
    assert found.verdict.text == "fused.default: round 3 was killed during TIMING: SIGKILL"
    assert (
        Omission(
            what="part of the rounds of TIMING",
            reason="round 3 was killed during TIMING: SIGKILL",
            run=handmade.FUSED,
        )
        in found.omissions
    )


def test_the_table_of_runs_says_the_spread_over_rounds_beside_the_first_rounds_own(
    tmp_path: Path,
) -> None:
    found = profile_with(
        tmp_path,
        round_of(2, 400.0, candidates_s=(0.0030,)),
        round_of(3, 600.0, candidates_s=(0.0040,)),
    )

    assert found.exit_code == EXIT_OK
    cells = {column.name: column.cell(found.runs[0]) for column in summary.columns(found)}
    assert list(cells)[:3] == ["ms/step", "ms/candidate", "ms/candidate, all processes"]
    assert (cells["ms/candidate"].text, cells["ms/candidate"].details) == (
        "0.0260",
        ("2 samples", "38,462 candidates/s"),
    )
    assert (
        cells["ms/candidate, all processes"].text,
        cells["ms/candidate, all processes"].details,
    ) == (
        "0.0300",
        ("0.0260\N{EN DASH}0.0400", "n = 3, min\N{EN DASH}max"),
    )


def test_with_one_round_there_is_no_such_column(tmp_path: Path) -> None:
    names = [column.name for column in summary.columns(profile_with(tmp_path))]

    assert [name for name in names if "rounds" in name] == []


def on_a_machine(record: RoundRecord, host_us: tuple[float, ...]) -> RoundRecord:
    assert isinstance(record.measured, TimedRound)
    timing = msgspec.structs.replace(
        record.measured.timing, machine=MachineSpeed(host_us=host_us, device_us=(7.0, 9.0))
    )
    return msgspec.structs.replace(
        record, measured=msgspec.structs.replace(record.measured, timing=timing)
    )


def test_the_machines_speed_of_a_round_is_its_median() -> None:
    speed = MachineSpeed(host_us=(4.0, 6.0, 100.0), device_us=(10.0,))
    run = run_of(on_a_machine(round_of(2, 110.0), (5.0,)), lost(3))
    run = msgspec.structs.replace(run, timing=msgspec.structs.replace(run.timing, machine=speed))

    found = rounds(run)

    assert isinstance(found, Rounds)
    assert found.machine == MachineSpeed(host_us=(6.0, 5.0), device_us=(10.0, 8.0))


def test_a_round_without_a_sample_of_the_machine_leaves_its_speed_unknown() -> None:
    run = run_of(on_a_machine(round_of(2, 110.0), ()))
    speed = MachineSpeed(host_us=(4.0, 6.0), device_us=(10.0, 11.0))
    run = msgspec.structs.replace(run, timing=msgspec.structs.replace(run.timing, machine=speed))

    found = rounds(run)

    assert isinstance(found, Rounds)
    assert found.machine == Skipped(reason="a round of TIMING has no check of the machine's speed")


def test_where_one_round_did_not_time_the_machine_its_speed_is_not_known() -> None:
    found = rounds(run_of(on_a_machine(round_of(2, 110.0), (5.0,))))

    assert isinstance(found, Rounds)
    assert found.machine == Skipped(reason="TIMING did not check the machine's speed")


def test_an_evaluation_that_marks_no_step_has_rounds_all_the_same() -> None:
    def stepless(timing: TimingPass) -> TimingPass:
        return msgspec.structs.replace(timing, step_us=((),))

    further = round_of(2, 110.0, candidates_s=(6.0,))
    assert isinstance(further.measured, TimedRound)
    measured = msgspec.structs.replace(further.measured, timing=stepless(further.measured.timing))
    run = run_of(msgspec.structs.replace(further, measured=measured), evaluates=True)
    assert isinstance(run.timing, TimingPass)

    found = rounds(msgspec.structs.replace(run, timing=stepless(run.timing)))

    assert isinstance(found, Rounds)
    assert (found.step_us, found.step) == ((), Skipped(reason="TIMING has no sample"))
    assert found.evaluation_s == (5.0, 6.0)


# ---------------------------------------------------------------- the single steps


def stepping(*processes: tuple[float, ...]) -> StepSeries:
    """Of a run whose processes took these steps, the last one of them lost."""
    timings = [
        TimingPass(clock="perf_counter", step_us=(steps[:2], steps[2:]), evaluation_s=())
        for steps in processes
    ]
    further = [
        RoundRecord(
            number=number,
            exit=OK,
            measured=TimedRound(
                first_call_s=1.0, graphs_from_cache=2, graphs_compiled=0, timing=timing
            ),
        )
        for number, timing in enumerate(timings[1:], start=2)
    ]
    run = msgspec.structs.replace(run_of(*further, lost(len(processes) + 1)), timing=timings[0])
    found = step_series(run)
    assert isinstance(found, StepSeries)
    return found


def test_each_step_of_a_short_run_is_in_its_series() -> None:
    found = stepping((10.0, 12.0, 11.0), (20.0, 11.0, 11.0))

    assert [(one.number, one.every, one.middle_us) for one in found.processes] == [
        (1, 1, (10.0, 12.0, 11.0)),
        (2, 1, (20.0, 11.0, 11.0)),
    ]
    assert all(one.low_us == one.middle_us == one.high_us for one in found.processes)
    assert [one.evaluations for one in found.processes] == [(2, 1), (2, 1)]
    assert (found.time.median, found.time.samples, found.time.maximum) == (11.0, 6, 20.0)
    assert (found.bins_from_us, found.counts[0], sum(found.counts), found.above) == (10.0, 1, 6, 0)


def test_a_long_run_keeps_the_extremes_of_neighbours_and_counts_what_is_far_above() -> None:
    # given: 6,000 steps of 100 to 109 us, and one of 5 ms among them
    steps = [100.0 + i % 10 for i in range(6000)]
    steps[3333] = 5000.0

    found = stepping(tuple(steps))

    (one,) = found.processes
    assert one.every * len(one.low_us) >= 6000 > one.every * (len(one.low_us) - 1)
    assert len(one.low_us) <= 60
    assert (min(one.low_us), max(one.middle_us), max(one.high_us)) == (100.0, 105.0, 5000.0)
    assert one.high_us.index(5000.0) == 3333 // one.every
    assert (sum(found.counts), found.above) == (5999, 1)
    assert found.bins_from_us + found.bin_us * len(found.counts) < 150


def test_without_times_there_is_no_series_and_the_reason_is_said() -> None:
    untimed = Skipped(reason="TIMING was not requested")

    assert step_series(msgspec.structs.replace(run_of(), timing=untimed)) == untimed
