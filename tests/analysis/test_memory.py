"""Memory and reads of each run, from MEMORY."""

from __future__ import annotations

import tarfile
from pathlib import Path

import msgspec
import pytest

from kgprof.analysis import memory
from kgprof.model import (
    MemoryPeaks,
    MemorySummary,
    MemoryTier,
    Recording,
    RunKey,
    RunRecord,
    Skipped,
)
from kgprof.reading import recordings
from kgprof.reading.evidence import Evidence
from tests.analysis.recordings import FUSED, died
from tests.analysis.recordings import recording as recorded
from tests.collectors import written_syncs

EAGER = RunKey(strategy="fused", mode="eager")
NONE = Skipped(reason="a CPU has no caching allocator")


def peaks(resident: int, allocated: int | Skipped = NONE) -> MemoryPeaks:
    return MemoryPeaks(
        allocated_bytes=allocated,
        reserved_bytes=allocated,
        resident_bytes=resident,
        resident_before_bytes=7,
    )


def run(key: RunKey, taken: MemoryPeaks | Skipped) -> RunRecord:
    return written_syncs.run(written_syncs.read(each=2), key=key, peaks=taken)


def on(device: str, *runs: RunRecord) -> Recording:
    whole = recorded(*runs, baseline=None)
    plan = msgspec.structs.replace(whole.header.plan, device=device)
    return msgspec.structs.replace(whole, header=msgspec.structs.replace(whole.header, plan=plan))


def summarised(recording: Recording) -> MemorySummary | Skipped:
    run = Evidence(recording).run(FUSED)
    assert run is not None
    return memory.summary(run)


def of_fused(device: str, *runs: RunRecord) -> MemorySummary:
    found = summarised(on(device, *runs))
    assert isinstance(found, MemorySummary)
    return found


def test_a_run_is_held_against_the_eager_one_of_its_strategy() -> None:
    found = of_fused("cpu", run(EAGER, peaks(100)), run(FUSED, peaks(130)))

    ((_, reads),) = found.reads.items()
    assert (found.steps, found.syncs_per_step, reads) == (5, 2.0, 2.0)
    assert (found.over_eager_bytes, found.over_eager_of, found.peaks) == (
        30,
        "resident",
        peaks(130),
    )


def test_on_a_gpu_it_is_what_was_allocated_there() -> None:
    found = of_fused("cuda", run(EAGER, peaks(100, 50)), run(FUSED, peaks(130, 45)))

    assert (found.over_eager_bytes, found.over_eager_of) == (-5, "allocated")


def test_without_the_pools_of_cuda_graphs_no_efficiency_and_no_budget_is_known() -> None:
    """What is allocated beside a pool is little: 41 times less than eager mode says nothing."""
    found = of_fused("cuda", run(EAGER, peaks(1, 264)), run(FUSED, peaks(1, 6)))

    unknown = peaks(1).graph_pool_bytes
    assert isinstance(unknown, Skipped)
    assert (found.of_eager, found.budget_bytes, found.taken_bytes) == (unknown,) * 3
    assert (found.tier, found.over_eager_bytes, found.over_eager_of) == (None, -258, "allocated")


RECORDINGS = Path(__file__).resolve().parents[2] / "fixtures" / "recordings"


def test_a_run_without_a_cuda_graph_keeps_no_pool_of_one(tmp_path: Path) -> None:
    """An H200's Recording from before the pools were looked at."""
    with tarfile.open(RECORDINGS / "evaluator_h200.tgz") as packed:
        packed.extractall(tmp_path, filter="data")
    evidence = Evidence(recordings.load(tmp_path / "recording"))

    found = {
        run.key.mode: memory.summary(run) for run in evidence.runs if run.key.strategy == "fused"
    }

    taken = {
        mode: each.taken_bytes for mode, each in found.items() if isinstance(each, MemorySummary)
    }
    unknown = peaks(1).graph_pool_bytes
    assert taken == {"eager": 40_019_456, "default": 40_003_072, "reduce-overhead": unknown}
    default = found["default"]
    assert isinstance(default, MemorySummary)
    assert default.of_eager == 40_019_456 / 40_003_072


def test_the_pools_of_cuda_graphs_are_taken_too() -> None:
    """As on an H200 with mode reduce-overhead: little is allocated, and the pools keep what eager
    mode allocates."""
    pooled = msgspec.structs.replace(
        peaks(1, 40), graph_pool_bytes=262, graph_pool_allocated_bytes=2
    )
    eager = msgspec.structs.replace(peaks(1, 264), graph_pool_bytes=0)
    found = of_fused("cuda", run(EAGER, eager), run(FUSED, pooled))

    assert (found.taken_bytes, found.over_eager_bytes, found.over_eager_of) == (300, 36, "taken")
    assert (found.of_eager, found.tier, found.budget_bytes) == (264 / 300, MemoryTier.MODERATE, 375)


@pytest.mark.parametrize(
    ("over", "tier"),
    [
        (-0.3, MemoryTier.LOW),
        (0.099, MemoryTier.LOW),
        (0.1, MemoryTier.MODERATE),
        (0.25, MemoryTier.HIGH),
    ],
)
def test_the_tiers_of_what_is_taken_over_eager(over: float, tier: MemoryTier) -> None:
    assert memory.tier(over) is tier


@pytest.mark.parametrize(
    ("others", "taken", "reason"),
    [
        ((), peaks(1), "fused was not run in mode eager"),
        (
            (run(RunKey(strategy="batched", mode="eager"), peaks(1)),),
            peaks(1),
            "fused was not run in mode eager",
        ),
        ((run(EAGER, Skipped(reason="no /proc")),), peaks(1), "eager run: no /proc"),
        ((died(EAGER),), peaks(1), "eager run: the run was killed during timing: SIGKILL"),
        ((run(EAGER, peaks(1)),), Skipped(reason="no /proc"), "no /proc"),
    ],
    ids=["alone", "of another strategy", "eager has no peak", "eager died", "no peak of its own"],
)
def test_without_both_peaks_there_is_no_difference(
    others: tuple[RunRecord, ...], taken: MemoryPeaks | Skipped, reason: str
) -> None:
    assert of_fused("cpu", *others, run(FUSED, taken)).over_eager_bytes == Skipped(reason=reason)


def test_a_run_without_the_pass_says_why() -> None:
    assert summarised(on("cpu", died(FUSED))) == Skipped(
        reason="the run was killed during timing: SIGKILL"
    )
