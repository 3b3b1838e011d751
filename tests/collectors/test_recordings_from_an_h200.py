"""What really became a CUDA graph on an H200, case by case: the launches, the reasons and the
lines."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import astuple

from kgprof import collectors
from kgprof.analysis import analyse
from kgprof.collectors.compile import compilations
from kgprof.collectors.graphs import cuda_graphs
from kgprof.collectors.graphs.cuda_graphs import CudaGraphs
from kgprof.model import CompileStages, Finding, KernelBreakdown, Recording, RunKey, Skipped
from kgprof.reading.evidence import Evidence
from kgprof.reading.recordings import load
from tests.gathering import for_all

FOLDER = Path(__file__).resolve().parents[2] / "fixtures" / "recordings" / "cuda_graphs_h200"
NAMES = ("written_inputs", "breaks", "addresses")


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """``findings``: (rule, the beginning of the line that it points at). ``pieces``: (in CUDA
    graphs, outside)."""

    launches: float
    pieces: tuple[tuple[int, int], ...] = ((1, 0),)
    findings: tuple[tuple[str, str], ...] = ()


CASES = {
    "normalised": Case(launches=1),
    "buffer_written": Case(launches=0, findings=(("KGP301", "history.add_(x)"), ("KGP303", ""))),
    "argument_written": Case(launches=0, findings=(("KGP301", "x.mul_(2)"), ("KGP303", ""))),
    "scalar_on_cpu": Case(
        launches=1, pieces=((1, 1),), findings=(("KGP302", "def scale(x, factor):"),)
    ),
    "copied_from_cpu": Case(
        launches=1, pieces=((1, 1),), findings=(("KGP302", "return layer_norm(x @ weight"),)
    ),
    "item_read": Case(
        launches=2, pieces=((1, 0), (1, 0)), findings=(("KGP101", "return y * x.sum().item()"),)
    ),
    "cond": Case(
        launches=0,
        pieces=((2, 1),),  # and none of them is ever used
        findings=(("KGP106", "def branch(x):"), ("KGP301", "return torch.cond("), ("KGP303", "")),
    ),
    "nonzero": Case(
        launches=2, pieces=((1, 0), (1, 0)), findings=(("KGP101", "return y[y > 0] * 2"),)
    ),
    "dropped_out": Case(launches=1),
    "masked_assignment": Case(launches=1),
    "view_of_input": Case(launches=1),
    "module_buffer_written": Case(launches=1),
    "parameter_moved": Case(launches=1, findings=(("KGP304", "def forward(self, x):"),)),
}


@pytest.fixture(scope="module")
def recordings() -> dict[str, Recording]:
    loaded = [load(FOLDER / name) for name in NAMES]
    return {run.key.strategy: recording for recording in loaded for run in recording.runs}


def event_of(recording: Recording, strategy: str) -> CudaGraphs:
    return next(
        event
        for event in cuda_graphs.collect(Evidence(recording))
        if event.run.strategy == strategy
    )


def findings_of(recording: Recording, strategy: str) -> list[Finding]:
    """But for what is said of times: the three recordings were made at once, and each held the
    others up."""
    key = RunKey(strategy=strategy, mode="as-is")
    found = [finding for finding in collectors.findings(Evidence(recording)) if finding.run == key]
    return [finding for finding in found if not collectors.rule_of(finding).judged_from_times]


def test_every_case_of_the_workload_was_recorded(recordings: dict[str, Recording]) -> None:
    assert set(recordings) == set(CASES)
    assert {recording.header.plan.environment.device_name for recording in recordings.values()} == {
        "NVIDIA H200"
    }


@for_all(CASES)
def test_the_launches_of_a_step(strategy: str, recordings: dict[str, Recording]) -> None:
    event = event_of(recordings[strategy], strategy)

    assert event.requested
    assert event.launches_per_step == CASES[strategy].launches
    assert (
        tuple((piece.graphed, piece.not_graphed) for piece in event.partitions)
        == CASES[strategy].pieces
    )


@for_all(CASES)
def test_the_findings_and_their_lines(strategy: str, recordings: dict[str, Recording]) -> None:
    found = [
        (finding.rule, finding.location.text.strip() if finding.location else "")
        for finding in findings_of(recordings[strategy], strategy)
    ]

    expected = sorted(CASES[strategy].findings)
    assert [rule for rule, _ in sorted(found)] == [rule for rule, _ in expected]
    assert all(
        line.startswith(start)
        for (_, line), (_, start) in zip(sorted(found), expected, strict=True)
    )


@for_all([name for name, case in CASES.items() if case.launches])
def test_a_graph_that_is_launched_was_recorded_in_the_second_call(
    strategy: str, recordings: dict[str, Recording]
) -> None:
    recorded = event_of(recordings[strategy], strategy).recorded

    assert not isinstance(recorded, Skipped)
    assert {one.call for one in recorded if not one.again} == {1}


def test_a_moved_parameter_is_named_with_its_addresses(recordings: dict[str, Recording]) -> None:
    (finding,) = findings_of(recordings["parameter_moved"], "parameter_moved")

    assert finding.message == (
        "the CUDA graph of Counting.forward was recorded again once after warm-up: static input "
        "data pointer changed."
    )
    assert "data pointer changed from" in finding.detail


@pytest.mark.parametrize("name", NAMES)
def test_the_stages_of_a_compilation_add_up_to_its_duration(name: str) -> None:
    evidence = Evidence(load(FOLDER / name))

    assert len(evidence.compilers) == len(evidence.runs)
    for trace in evidence.compilers:
        for row in compilations.compilations(trace):
            assert isinstance(row.stages, CompileStages)
            assert isinstance(row.duration_s, float)
            assert sum(astuple(row.stages)) == pytest.approx(row.duration_s, rel=0.02, abs=0.01)
            assert row.stages.machine_code_s > 0


@pytest.mark.parametrize("name", NAMES)
def test_the_whole_recording_is_read(name: str) -> None:
    profile = analyse(load(FOLDER / name))

    assert profile.device == "cuda"
    kernels = [run.kernels for run in profile.runs]
    assert all(
        isinstance(one, KernelBreakdown) and one.device == "cuda" and one.rows for one in kernels
    )
