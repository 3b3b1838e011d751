"""HTA in its own process: its figures are ours where both can be right, and every call says how it
ended."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from kgprof.measures import kernels
from kgprof.model import DeviceIdle, Holistic, KernelBreakdown, PassName, Skipped
from kgprof.reading import kineto
from kgprof.record.processes.holistic import GRAPHS_UNKNOWN, ON_A_CPU
from tests.analysis.events import event, step, write
from tests.conftest import SHARED

H200 = SHARED / "traces" / "h200"
# test_holistic.py compares the figures of all nine traces, in kgprof's own words.
TRACES = ("strategies_one_eager", "strategies_one_reduce_overhead", "strategies_one_torch_cond")
CPU_TRACE = Path(__file__).resolve().parents[2] / "measures" / "traces" / "cpu_eager.json.gz"
Answer = Holistic | Skipped


def asked(tmp_path: Path, trace: Path) -> Answer:
    answer = tmp_path / "holistic.json"
    command = [
        sys.executable,
        "-P",
        "-m",
        "kgprof.record.processes.holistic",
        str(answer),
        str(trace),
    ]
    subprocess.run(command, check=True, timeout=120, cwd=Path(__file__).parents[3])
    return msgspec.json.decode(answer.read_bytes(), type=Answer)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Holistic]:
    """Of each trace, asked once for all that is looked at."""
    every = {
        name: asked(tmp_path_factory.mktemp(name), H200 / f"{name}.json.gz") for name in TRACES
    }
    return {name: found for name, found in every.items() if isinstance(found, Holistic)}


def called(found: Holistic) -> dict[str, str]:
    return {call.name: call.outcome for call in found.calls}


@pytest.mark.shared
@pytest.mark.parametrize("name", TRACES)
def test_kernel_and_idle_totals_are_ours(answers: dict[str, Holistic], name: str) -> None:
    trace = H200 / f"{name}.json.gz"
    ours = kernels.breakdown(
        kineto.read(trace), device="cuda", measured_in=PassName.TRACE, cpp_kernel_profile=False
    )
    assert isinstance(ours, KernelBreakdown)
    assert isinstance(ours.idle, DeviceIdle)

    (rank,) = answers[name].ranks

    assert isinstance(rank.idle_us, float)
    assert isinstance(rank.window_us, float)
    # HTA adds up floats; and its window begins with the first device event, so it knows no idle
    # time at the edges.
    assert rank.kernels == pytest.approx({row.name: row.total_us for row in ours.rows}, rel=1e-9)
    assert rank.idle_us == pytest.approx(ours.idle_us - ours.idle.edges_us, rel=1e-4)
    assert rank.window_us - rank.idle_us == pytest.approx(ours.busy_us, rel=1e-4)
    # Its host_wait is the whole of a gap whose launch came late; of that gap ours counts as the
    # host's what came before the launch.
    host_wait = sum(cause.total_us for cause in rank.idle_causes if cause.cause == "host_wait")
    assert ours.idle.host_us <= host_wait <= ours.idle_us


@pytest.mark.shared
def test_what_hta_gets_wrong_under_cuda_graphs_is_not_asked(answers: dict[str, Holistic]) -> None:
    found = answers["strategies_one_reduce_overhead"]

    assert found.ranks[0].queue_length == {}
    refused = [call.name for call in found.calls if call.reason == GRAPHS_UNKNOWN]
    assert refused == [
        "get_queue_length_summary",
        "get_cuda_kernel_launch_stats",
        "critical_path_analysis",
    ]


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "kernels_us", "queue_length"),
    [("strategies_one_eager", 3977.81, 25.0), ("strategies_one_torch_cond", 2394.959, 5.0)],
)
def test_a_traces_figures_are_htas(
    answers: dict[str, Holistic], name: str, kernels_us: float, queue_length: float
) -> None:
    found = answers[name]

    (rank,) = found.ranks
    assert sum(rank.kernels.values()) == pytest.approx(kernels_us)
    assert rank.queue_length == {"7": queue_length}
    assert set(found.versions) >= {"pandas", "numpy"}


def test_a_cpu_trace_is_not_for_hta(tmp_path: Path) -> None:
    assert asked(tmp_path, CPU_TRACE) == Skipped(reason=ON_A_CPU)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the trace is empty"),
        (b'{"traceEvents": []}', ON_A_CPU),
        (b"PK\x03\x04", "not a Kineto trace"),
    ],
)
def test_what_is_no_trace_is_said(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(content)

    found = asked(tmp_path, path)

    assert isinstance(found, Skipped)
    assert reason in found.reason


def test_a_trace_that_hta_cannot_load_says_what_it_raised(tmp_path: Path) -> None:
    # given: a file that breaks off, of which kgprof reads the beginning
    whole = write(
        tmp_path / "whole.json", [step(0, 0, 9), event("kernel", "k", 1.0, 2.0, thread=7, stream=7)]
    )
    path = tmp_path / "t.json"
    path.write_bytes(whole.read_bytes()[:-1])

    found = asked(tmp_path, path)

    assert isinstance(found, Skipped)
    assert found.reason.startswith("HTA could not load the trace: JSONDecodeError")


def test_a_call_that_raises_is_listed_with_its_words(tmp_path: Path) -> None:
    # given: one kernel that nothing on the host launched
    path = write(
        tmp_path / "t.json", [step(0, 0, 9), event("kernel", "k", 1.0, 2.0, thread=7, stream=7)]
    )

    found = asked(tmp_path, path)

    assert isinstance(found, Holistic)
    assert called(found)["get_gpu_kernel_breakdown"] == "ok"
    assert found.ranks[0].kernels == {"k": 2.0}
    for call in found.calls:
        assert (call.outcome in ("raised", "not called")) == bool(call.reason)
