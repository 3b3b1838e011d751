"""Ranks beside each other: who is late to the collectives, by what, and when nobody is."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgprof import cli
from kgprof.model import LateCause, RankBalance, RunKey, Skipped
from tests.analysis.events import event
from tests.record.test_kineto_files import profile_in, saved, work


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
        f"rank {late} is late: the other ranks wait 0.300 of 1.00 ms per step (30%) for it, "
        f"because {words}" in found.text
    )
    assert verdict.startswith(found.text)
    assert not isinstance(found.collectives, Skipped)
    (call,) = found.collectives
    assert (call.last_rank, call.last_in, call.apart_us) == (late, 4, 300.0)
    assert call.wait_us == tuple(0.0 if rank == late else 300.0 for rank in range(3))


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


@pytest.mark.parametrize("first_late", [True, False])
def test_ranks_that_are_late_in_turn_are_not_called_late(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, first_late: bool
) -> None:
    traces = []
    for rank in range(2):
        events = []
        for number in range(8):
            late = (rank + number + first_late) % 2
            (mark, *rest) = work(
                compute_us=500.0 if late else 200.0, talk_us=200.0 if late else 500.0, steps=1
            )
            moved = [{**each, "ts": each["ts"] + 1000.0 * number} for each in (mark, *rest)]
            for each in moved:
                if "correlation" in each["args"]:
                    each["args"] = {
                        **each["args"],
                        "correlation": each["args"]["correlation"] + 2 * number,
                    }
            moved[0]["name"] = f"ProfilerStep#{number}"
            events += moved
        traces.append(saved(tmp_path / f"rank{rank}.json", events, rank=rank))

    found, verdict = compared(tmp_path, capsys, *traces)

    assert (found.straggler, found.cause) == (None, None)
    assert found.text.startswith("no rank is late: rank ")
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
        "rank 1 is late: rank 0 waits 7.36 of 17.4 ms per step (42%) for it, because it computes "
        "longer: 9.86 vs 3.04 ms per step, most of it aten::mm"
    )

    found, verdict = compared(tmp_path, capsys, RECORDED / "balanced")
    assert (found.straggler, found.cause) == (None, None)
    assert "late" not in verdict
    assert not isinstance(found.collectives, Skipped)
    assert [(call.name, call.steps) for call in found.collectives] == [("gloo:all_reduce", 20)]
