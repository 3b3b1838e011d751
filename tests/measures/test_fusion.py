"""A compiled graph beside what eager mode does in its place, on the trace of an H200."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from kgprof import model as m
from kgprof.measures import kernels
from kgprof.measures.kernels import OF_BACKWARD, fusion
from kgprof.reading.evidence import Evidence, RunEvidence
from kgprof.reading.recordings import load

FOLDER = Path(__file__).resolve().parents[2] / "fixtures" / "recordings" / "cuda_graphs_h200"
COPY = m.CeilingSamples(
    operation=m.COPY, dtype="", unit="bytes/s", per_s=(3e12, 4e12, 5e12), how=""
)
GRAPH = m.GraphWork(
    compile_id="0/0",
    backward=False,
    eager=m.EagerWork(operators=3, bytes_moved=9000),
    kernels=2,
    generated=1,
    moved_bytes=6000,
    unknown=0,
    needed_bytes=3000,
    buffers=m.BufferPlan(allocated=1, allocated_bytes=1000),
)


def evidence(*graphs: m.GraphWork, ceilings: m.Ceilings | m.Skipped) -> RunEvidence:
    recording = load(next(path.parent for path in sorted(FOLDER.rglob("recording.json"))))
    runs = (
        run
        for run in recording.runs
        if isinstance(run.trace, m.TracePass) and run.key.mode != m.EAGER
    )
    run = msgspec.structs.replace(
        next(runs), kernel_origins=m.KernelOrigins(origins=(), graphs=graphs)
    )
    whole = msgspec.structs.replace(recording, runs=(run,), ceilings=ceilings)
    return Evidence(whole).runs[0]


def test_the_rate_of_a_region_is_its_bytes_over_the_device_time_of_its_calls() -> None:
    run = evidence(GRAPH, ceilings=m.Ceilings(device_name="H200", measured=(COPY,)))

    found, breakdown = fusion(run), kernels.of_trace(run)

    assert isinstance(found, m.Fusion)
    assert isinstance(breakdown, m.KernelBreakdown)
    (graph,) = found.graphs
    (total_us,) = [total.total_us for total in breakdown.by_region if total.span == "0/0"]
    assert isinstance(graph.calls, int)
    assert graph.calls == breakdown.steps
    assert graph.us == pytest.approx(total_us / graph.calls)
    assert graph.bytes_per_s == pytest.approx(6000 / (total_us / graph.calls / 1e6))
    assert isinstance(graph.bytes_per_s, float)
    assert graph.of_copy == pytest.approx(graph.bytes_per_s / 4e12)
    launched = sum(row.count for row in breakdown.rows if row.generator not in ("memcpy", "memset"))
    assert found.kernels == launched / breakdown.steps
    assert found.eager_kernels == m.Skipped(reason=f"{run.key.strategy} was not run in mode eager")


def test_a_backward_has_no_region_in_a_trace_and_a_card_may_have_no_ceilings() -> None:
    backward = msgspec.structs.replace(GRAPH, backward=True)
    elsewhere = msgspec.structs.replace(GRAPH, compile_id="7/0")
    none = m.Skipped(reason="no ceilings")

    found = fusion(evidence(GRAPH, backward, elsewhere, ceilings=none))

    assert isinstance(found, m.Fusion)
    first, second, third = found.graphs
    assert first.of_copy == none
    assert (second.us, second.bytes_per_s, second.of_copy) == (OF_BACKWARD,) * 3
    assert third.us == m.Skipped(reason="TRACE has no call of this region")


def test_a_recording_from_before_says_so() -> None:
    run = evidence(ceilings=m.Skipped(reason="none"))
    run.record = msgspec.structs.replace(run.record, kernel_origins=m.KernelOrigins(origins=()))

    assert fusion(run) == m.Skipped(reason="this Recording has no work by graph")
