"""Ranks beside each other: who is late to the collectives, by what, and when nobody is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kgprof import cli
from kgprof.analysis import analyse
from kgprof.analysis.ranks import notes, rank_balance
from kgprof.collectors.time.host_code import collect, diagnose
from kgprof.model import (
    Finding,
    LateCause,
    Location,
    RankBalance,
    Recording,
    RunKey,
    ScriptRun,
    Skipped,
)
from kgprof.model.compile_records import CompileRecords
from kgprof.reading import recordings
from kgprof.reading.evidence import Evidence
from tests.analysis.events import event
from tests.collectors import written
from tests.collectors.written_gpu_time import sampled
from tests.record.files.test_kineto_files import COLLECTIVE, KERNEL, profile_in, saved, work


def compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *traces: Path
) -> tuple[RankBalance, str]:
    """And the verdict."""
    code = cli.run(["trace", "--no-hta", "-q", "-o", str(tmp_path / "out"), *map(str, traces)])
    assert code == 0
    capsys.readouterr()
    profile = profile_in(tmp_path / "out")
    assert profile.rank_balance is not None
    return profile.rank_balance, profile.verdict.text


@pytest.mark.parametrize("late", [0, 1, 2])
@pytest.mark.parametrize(
    ("compute_us", "copy_us", "cause", "words"),
    [
        (
            500.0,
            0.0,
            LateCause.COMPUTE,
            "it computes longer: 0.500 vs 0.200 ms per step, most of it triton_poi_fused_add_0",
        ),
        (
            200.0,
            300.0,
            LateCause.COPIES,
            "its copies take longer: 0.300 vs 0 ms per step, most of it Memcpy HtoD",
        ),
        (
            200.0,
            0.0,
            LateCause.HOST,
            "its GPU waits longer for its CPU: 0.600 vs 0.300 ms per step",
        ),
    ],
)
def test_the_late_rank_and_its_cause_lead(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    late: int,
    compute_us: float,
    copy_us: float,
    cause: LateCause,
    words: str,
) -> None:
    """Steps of 1,000 us in which the late rank comes 300 us after the others."""
    traces = []
    for rank in range(3):
        is_late = rank == late
        events = work(
            compute_us=compute_us if is_late else 200.0,
            talk_us=200.0 if is_late else 500.0,
            steps=4,
        )
        if is_late and copy_us:
            events += [
                event("gpu_memcpy", "Memcpy HtoD", at + 500.0, copy_us, thread=7, stream=7)
                for at in range(0, 4000, 1000)
            ]
        if is_late and cause is LateCause.HOST:
            events += [
                event("cpu_op", "aten::sort", at + 500.0, 300.0) for at in range(0, 4000, 1000)
            ]
        traces.append(saved(tmp_path / f"rank{rank}.json", events, rank=rank, world=3))

    found, verdict = compared(tmp_path, capsys, *traces)

    assert (found.straggler, found.cause) == (RunKey(strategy=f"rank{late}", mode="as-is"), cause)
    assert (
        f"rank {late} is late: the other ranks wait 0.300 of 1.00 ms per traced step (30%) for it, "
        f"because {words}" in found.text
    )
    assert verdict.startswith(found.text)
    assert not isinstance(found.collectives, Skipped)
    (call,) = found.collectives
    assert (call.last_rank, call.last_in, call.apart_us) == (late, 4, 300.0)
    assert call.wait_us == tuple(0.0 if rank == late else 300.0 for rank in range(3))


SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


def in_groups(
    events: list[dict[str, Any]], ranks: str, *, kernel: str = "", called: str = "allreduce"
) -> list[dict[str, Any]]:
    """As NCCL's kernels of a process group are described by torch; ``kernel``: its name."""
    for each in events:
        if each["name"] == COLLECTIVE:
            each["name"] = kernel or COLLECTIVE
            each["args"] |= {"Collective name": called, "Process Group Ranks": ranks}
    return events


def late_rank(*, rank: int, late: int, steps: int = 4) -> list[dict[str, Any]]:
    """It computes 300 us longer."""
    is_late = rank == late
    compute_us, talk_us = (500.0, 200.0) if is_late else (200.0, 500.0)
    return work(compute_us=compute_us, talk_us=talk_us, steps=steps)


@pytest.mark.parametrize(
    ("called", "is_matched"), [("all_to_allv", True), ("send", False), ("broadcast", False)]
)
def test_a_kernel_called_send_recv_is_what_torch_calls_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], called: str, *, is_matched: bool
) -> None:
    traces = []
    for rank in range(3):
        events = late_rank(rank=rank, late=1)
        in_groups(events, "[0, 1, 2]", kernel=SEND_RECV, called=called)
        traces.append(saved(tmp_path / f"rank{rank}.json", events, rank=rank, world=3))

    found, verdict = compared(tmp_path, capsys, *traces)

    assert isinstance(found.collectives, Skipped) is not is_matched
    if is_matched:
        assert verdict.startswith("rank 1 is late: the other ranks wait 0.300 of 1.00 ms per")
    else:
        assert "whether the others wait for it is not known" in verdict


def test_a_late_rank_holds_up_its_own_process_group_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    traces = []
    for rank in range(8):
        if rank < 4:
            events = in_groups(work(compute_us=200.0, talk_us=200.0, steps=4), "[0, 1, 2, 3]")
        else:
            events = in_groups(late_rank(rank=rank, late=5), "[4, 5, 6, 7]")
        path = tmp_path / f"rank{rank}.json"
        traces.append(saved(path, events, rank=rank, world=8))

    found, verdict = compared(tmp_path, capsys, *traces)

    assert found.straggler == RunKey(strategy="rank5", mode="as-is")
    assert verdict.startswith(
        "rank 5 is late: ranks 4, 6 and 7 wait 0.300 of 1.00 ms per traced step (30%) for it, "
        "because it computes longer"
    )


def test_a_rank_that_is_late_because_it_waited_elsewhere_is_not_the_late_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rank 1 computes longer and holds rank 0 up, which so comes late to its group with rank 2.
    Rank 2 waits as long for rank 0 as rank 0 does for rank 1."""
    traces = []
    for rank, (compute_us, first_us, second_us) in enumerate(
        [(100.0, 400.0, 50.0), (400.0, 100.0, 0.0), (100.0, 0.0, 350.0)]
    ):
        pair, other = (work(compute_us=compute_us, talk_us=us, steps=4) for us in (1.0, 1.0))
        in_groups(pair, "[0, 1]")
        in_groups(other, "[0, 2]")
        for each in pair:
            if "Collective name" in each["args"]:
                each["dur"] = first_us
        for each in other:
            each["args"]["correlation"] = each["args"].get("correlation", 0) + 100
            if "Collective name" in each["args"]:
                each["ts"] += first_us
                each["dur"] = second_us
        events = [each for each in pair if rank != 2 or each["name"] != COLLECTIVE]
        if rank != 1:
            events += [
                each
                for each in other
                if each["name"] == COLLECTIVE
                or (each["cat"] == "cuda_runtime" and each["args"]["correlation"] % 2 == 0)
            ]
        traces.append(saved(tmp_path / f"rank{rank}.json", events, rank=rank, world=3))

    found, verdict = compared(tmp_path, capsys, *traces)

    assert found.straggler == RunKey(strategy="rank1", mode="as-is")
    assert verdict.startswith("rank 1 is late: rank 0 waits 0.300 of 1.00 ms per traced step")


def test_a_rank_that_is_late_in_the_only_traced_step_is_named_with_that(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    traces = [
        saved(
            tmp_path / f"rank{rank}.json",
            late_rank(rank=rank, late=0, steps=1),
            rank=rank,
        )
        for rank in range(2)
    ]

    found, verdict = compared(tmp_path, capsys, *traces)

    assert found.cause is LateCause.COMPUTE
    assert verdict.startswith(
        "rank 0 is late: rank 1 waits 0.300 of 1.00 ms in the only traced step (30%) for it"
    )


def test_a_rank_whose_work_explains_less_than_half_of_the_wait_is_not_called_late(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its collective ends 300 us earlier than the others', of which 100 us are compute; in the rest
    nothing runs on either of them."""
    traces = []
    for rank, (compute_us, talk_us, copy_us) in enumerate(
        [(200.0, 500.0, 0.0), (300.0, 200.0, 100.0)]
    ):
        events = work(compute_us=compute_us, talk_us=talk_us, steps=4)
        if copy_us:
            events += [
                event("gpu_memcpy", "Memcpy HtoD", at + 700.0, copy_us, thread=7, stream=7)
                for at in range(0, 4000, 1000)
            ]
        traces.append(saved(tmp_path / f"rank{rank}.json", events, rank=rank))

    found, verdict = compared(tmp_path, capsys, *traces)

    assert (found.straggler, found.cause) == (None, None)
    assert found.text == (
        "no rank is called late: rank 0 waits 0.300 of 1.00 ms per traced step, but only 0.100 ms "
        "of that are seen in what rank 1 does longer"
    )
    assert "late" not in verdict


def test_a_wait_beside_other_work_makes_nobody_late(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rank 0 comes 300 us earlier to the collective, beside which its own kernel runs all the
    time."""
    traces = []
    for rank, talk_us in enumerate((500.0, 200.0)):
        events = work(compute_us=100.0, talk_us=talk_us, steps=4)
        for at in range(0, 4000, 1000):
            beside = event("kernel", KERNEL, at + 200.0, 600.0, thread=7, stream=7)
            del beside["args"]["correlation"]
            events.append(beside)
        traces.append(saved(tmp_path / f"rank{rank}.json", events, rank=rank))

    found, verdict = compared(tmp_path, capsys, *traces)

    assert (found.straggler, found.cause) == (None, None)
    assert found.text == (
        "no rank is late: rank 0 waits on average up to 0.300 of 1.00 ms per traced step for "
        "rank 1, and has other work meanwhile"
    )
    assert "late" not in verdict


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "cause", "words"),
    [
        ("late_host", LateCause.HOST, "the other ranks wait 1.50 of 10.00 ms per traced step"),
        ("late_compute", LateCause.COMPUTE, "it computes longer: 3.50 vs 2.00 ms"),
        ("late_copies", LateCause.COPIES, "its copies take longer: 1.51 vs 0.0100 ms"),
        ("late_allreduce", LateCause.HOST, "its GPU waits longer for its CPU"),
        ("late_groups", LateCause.HOST, "ranks 4, 6 and 7 wait 1.50 of 10.00 ms"),
        ("late_one_step", LateCause.HOST, "1.50 of 9.99 ms in the only traced step"),
        ("late_none", None, "no rank is late: they wait on average at most 0 of 10.00 ms"),
    ],
)
def test_the_late_one_of_eight_ranks_is_named(
    shared: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    cause: LateCause | None,
    words: str,
) -> None:
    found, verdict = compared(tmp_path, capsys, shared / "cases" / "traces" / name)

    late = None if cause is None else RunKey(strategy="rank5", mode="as-is")
    assert (found.straggler, found.cause) == (late, cause)
    assert words in found.text
    assert verdict.startswith("rank 5 is late: ") is (late is not None)


@pytest.mark.parametrize(("bare_us", "is_named"), [(900.0, True), (600.0, False)])
def test_a_rank_that_may_be_slow_because_it_is_watched_is_not_called_late(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], bare_us: float, *, is_named: bool
) -> None:
    """A step takes 1,000 us under the profiler, and the others wait 300 us for the CPU of rank
    0."""
    traces = []
    for rank, talk_us in enumerate((200.0, 500.0)):
        events = work(compute_us=200.0, talk_us=talk_us, steps=4)
        if rank == 0:
            events += [
                event("cpu_op", "aten::sort", at + 500.0, 300.0) for at in range(0, 4000, 1000)
            ]
        traces.append(saved(tmp_path / f"rank{rank}.json", events, rank=rank))
    compared(tmp_path, capsys, *traces)
    folder = tmp_path / "out" / "recording"
    for path in folder.glob("runs/*/trace.json"):
        traced = json.loads(path.read_text())
        path.write_text(json.dumps({**traced, "bare_us": bare_us}))

    found = analyse(recordings.load(folder)).rank_balance

    assert found is not None
    assert (found.straggler is not None) is is_named
    if not is_named:
        assert found.text == (
            "no rank is called late: rank 1 waits 0.300 of 1.00 ms per traced step, but without "
            "the profiler a step takes 0.600 ms: rank 0 may be slow because it is watched"
        )


def test_a_rank_whose_cpu_works_no_longer_than_the_others_is_not_called_late(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    traces = []
    for rank, talk_us in enumerate((500.0, 200.0)):
        events = work(compute_us=200.0, talk_us=talk_us, steps=4)
        traces.append(saved(tmp_path / f"rank{rank}.json", events, rank=rank))

    found, verdict = compared(tmp_path, capsys, *traces)

    assert (found.straggler, found.cause) == (None, None)
    assert found.last is not None
    assert found.last.strategy.endswith("rank1")
    assert found.text == (
        "no rank is called late: rank 0 waits 0.300 of 1.00 ms per traced step, but the CPU of "
        "rank 1 works only 0 ms longer"
    )
    assert "late" not in verdict


def python_code(*found: tuple[RunKey, int]) -> list[Finding]:
    """That the GPU of each run waits for jitter(), longest in that line."""
    (one,) = diagnose(collect(Evidence(sampled())))
    return [
        replace(one, run=run, location=Location("/src/train.py", line, "jitter"))
        for run, line in found
    ]


def judged(folder: Path, findings: Sequence[Finding]) -> RankBalance:
    recorded = recordings.load(folder)
    balance = rank_balance(Evidence(recorded), analyse(recorded).runs, findings)
    assert balance is not None
    return balance


RANKS = tuple(RunKey(strategy=f"rank{rank}", mode="as-is") for rank in range(2))


def test_python_code_makes_no_rank_late_whose_cpu_works_no_longer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    traces = []
    for rank, talk_us in enumerate((500.0, 200.0)):
        events = work(compute_us=200.0, talk_us=talk_us, steps=4)
        traces.append(saved(tmp_path / f"rank{rank}.json", events, rank=rank))
    compared(tmp_path, capsys, *traces)

    found = judged(tmp_path / "out" / "recording", python_code((RANKS[1], 9)))

    assert found.straggler is None
    assert found.text.endswith("but the CPU of rank 1 works only 0 ms longer")


@pytest.mark.parametrize(
    ("findings", "is_named"),
    [
        pytest.param(python_code((RANKS[0], 9)), True, id="of one rank"),
        pytest.param(python_code((RANKS[0], 9), (RANKS[1], 7)), False, id="of both"),
    ],
)
def test_python_code_of_one_rank_alone_is_no_work_of_the_profilers(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    findings: Sequence[Finding],
    *,
    is_named: bool,
) -> None:
    """Without the profiler a step takes 600 us, and under it the others wait 300 us for rank 0."""
    traces = []
    for rank, talk_us in enumerate((200.0, 500.0)):
        events = work(compute_us=200.0, talk_us=talk_us, steps=4)
        if rank == 0:
            events += [
                event("cpu_op", "aten::sort", at + 500.0, 300.0) for at in range(0, 4000, 1000)
            ]
        traces.append(saved(tmp_path / f"rank{rank}.json", events, rank=rank))
    compared(tmp_path, capsys, *traces)
    folder = tmp_path / "out" / "recording"
    for path in folder.glob("runs/*/trace.json"):
        traced = json.loads(path.read_text())
        path.write_text(json.dumps({**traced, "bare_us": 600.0}))

    found = judged(folder, findings)

    assert (found.straggler == RANKS[0]) is is_named
    assert ("jitter()" in found.text) is is_named


def in_turn(rank: int) -> list[dict[str, Any]]:
    """Eight steps in which two ranks take turns to come 300 us late."""
    events = []
    for number in range(8):
        late = (rank + number) % 2
        (mark, *rest) = work(
            compute_us=500.0 if late else 200.0, talk_us=200.0 if late else 500.0, steps=1
        )
        moved = [{**each, "ts": each["ts"] + 1000.0 * number} for each in (mark, *rest)]
        for each in moved:
            if "correlation" in each["args"]:
                correlation = each["args"]["correlation"] + 2 * number
                each["args"] = {**each["args"], "correlation": correlation}
        moved[0]["name"] = f"ProfilerStep#{number}"
        events += moved
    return events


def test_of_two_groups_without_a_late_rank_the_one_that_waits_longer_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    traces = []
    for rank in range(4):
        if rank < 2:
            events = in_groups(work(compute_us=200.0, talk_us=200.0, steps=8), "[0, 1]")
        else:
            events = in_groups(in_turn(rank), "[2, 3]")
        traces.append(saved(tmp_path / f"rank{rank}.json", events, rank=rank, world=4))

    found, _ = compared(tmp_path, capsys, *traces)

    assert found.straggler is None
    assert (
        "came last in 4 of 8 steps, and they wait on average up to 0.150 of 1.00 ms" in found.text
    )


@pytest.mark.parametrize("first_late", [True, False])
def test_ranks_that_are_late_in_turn_are_not_called_late(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, first_late: bool
) -> None:
    traces = [
        saved(tmp_path / f"rank{rank}.json", in_turn(rank + first_late), rank=rank)
        for rank in range(2)
    ]

    found, verdict = compared(tmp_path, capsys, *traces)

    assert (found.straggler, found.cause) == (None, None)
    assert found.text == (
        "no rank is late in every step: rank 0 came last in 4 of 8 steps, and they wait on average "
        "up to 0.150 of 1.00 ms per traced step for each other"
    )
    assert "late" not in verdict


RECORDED = Path(__file__).resolve().parents[2] / "fixtures" / "recordings" / "ranks_cpu"


def test_a_straggler_among_gloo_ranks_is_named_and_a_balanced_run_says_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found, verdict = compared(tmp_path, capsys, RECORDED / "straggler")
    assert (found.straggler, found.cause) == (
        RunKey(strategy="rank1", mode="as-is"),
        LateCause.COMPUTE,
    )
    assert verdict.startswith(
        "rank 1 is late: rank 0 waits 5.64 of 17.4 ms per traced step (33%) for it, because it "
        "computes longer: 9.86 vs 3.04 ms per step, most of it aten::mm"
    )

    found, verdict = compared(tmp_path, capsys, RECORDED / "balanced")
    assert (found.straggler, found.cause) == (None, None)
    assert "late" not in verdict
    assert not isinstance(found.collectives, Skipped)
    assert [(call.name, call.steps) for call in found.collectives] == [("gloo:all_reduce", 20)]


def two_ranks(*records: CompileRecords | Skipped) -> Recording:
    whole = written.recording(*written.compiled_once())
    runs = [
        replace(
            whole.runs[0],
            key=RunKey(f"rank{rank}", "as-is"),
            script=ScriptRun(step="an optimizer step", steps=20, counted={}, rank=rank),
            records=each,
        )
        for rank, each in enumerate(records)
    ]
    plan = replace(whole.header.plan, runs=tuple(run.key for run in runs), baseline=None)
    return replace(whole, header=replace(whole.header, plan=plan), runs=tuple(runs))


def test_a_rank_without_records_is_not_said_to_have_compiled_nothing() -> None:
    known = written.records(*written.compiled_once())

    found = notes(Evidence(two_ranks(known, Skipped(reason="it was killed"))))

    assert not any("compiled" in note for of_run in found.values() for note in of_run)


def test_graphs_of_other_sizes_with_the_same_ids_are_not_called_the_same() -> None:
    """Static sizes of each rank's own batch: the compile ids say nothing of them."""
    known = written.records(*written.compiled_once())

    assert not any(notes(Evidence(two_ranks(known, known))).values())
