"""A round is its median; intervals are over rounds; a round that was lost is said and not counted."""

from __future__ import annotations

from pathlib import Path

import msgspec

from kgprof.analysis import analyse
from kgprof.errors import EXIT_OK, EXIT_WORKLOAD
from kgprof.measures.rounds import COLD, ONE_ROUND, rounds
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
    TimedRound,
    TimingPass,
)
from kgprof.reading.link_prediction import UNIT
from kgprof.render import summary
from tests.record import handmade

OK = Exit(outcome="ok")
KILLED = Exit(outcome="killed", message="SIGKILL", during="timing", exit_code=-9)


def round_of(number: int, step_us: float, *, candidates_s: tuple[float, ...] = (), warm_s: float = 0.5) -> RoundRecord:
    """Three steps with this median, and one far above it."""
    steps = (step_us * 0.5, step_us, step_us * 10)
    timing = TimingPass(clock="perf_counter", step_us=(steps,), evaluation_s=candidates_s)
    measured = TimedRound(first_call_s=warm_s, graphs_from_cache=2, graphs_compiled=0, timing=timing)
    return RoundRecord(number=number, exit=OK, measured=measured)


def lost(number: int, ended: Exit = KILLED) -> RoundRecord:
    return RoundRecord(number=number, exit=ended, measured=Skipped(reason=f"the round {ended.words}"))


def run_of(*further: RoundRecord, evaluates: bool = False) -> RunRecord:
    absent = Skipped(reason="not here")
    timing = TimingPass(
        clock="perf_counter", step_us=((90.0, 100.0, 900.0),), evaluation_s=(4.0, 5.0, 9.0) if evaluates else ()
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
    )


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
    plan = msgspec.structs.replace(recording.header.plan, runs=(sound.key,), baseline=None, agreement=False)
    header = msgspec.structs.replace(recording.header, plan=plan)
    run = msgspec.structs.replace(sound, rounds=further)
    return analyse(msgspec.structs.replace(recording, header=header, runs=(run,)))


def test_a_lost_round_is_said_in_the_verdict_the_omissions_and_the_exit_code(tmp_path: Path) -> None:
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


def test_the_table_of_runs_says_the_spread_over_rounds_beside_the_first_rounds_own(tmp_path: Path) -> None:
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
        ("n = 2, no spread", "38,462 candidates/s"),
    )
    assert (cells["ms/candidate, all processes"].text, cells["ms/candidate, all processes"].details) == (
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
    return msgspec.structs.replace(record, measured=msgspec.structs.replace(record.measured, timing=timing))


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
