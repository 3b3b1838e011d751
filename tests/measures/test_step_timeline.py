"""The median step as lanes: by hand, on generated steps, and on an H200's recording."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kgprof.measures import kernels
from kgprof.measures.kernel_kinds import Kinds
from kgprof.measures.step_timeline import MAX_BLOCKS, step_timeline
from kgprof.model import KernelBreakdown, Lane, LaneBlock, PassName, Skipped, StepTimeline
from kgprof.reading import kineto
from kgprof.reading.launches import launched
from tests.analysis.events import event, step, write
from tests.measures.test_idle import kernel, launch

H200 = Path(__file__).resolve().parents[2] / "fixtures" / "recordings" / "cuda_graphs_h200"


def drawn(path: Path) -> StepTimeline | Skipped:
    columns = kineto.read(path).columns
    return step_timeline(columns, launched(columns), Kinds())


def timeline_of(path: Path) -> StepTimeline:
    found = drawn(path)
    assert isinstance(found, StepTimeline)
    return found


def block(name: str, kind: str, start: float, duration: float, events: int = 1) -> LaneBlock:
    return LaneBlock(name=name, kind=kind, start_us=start, duration_us=duration, events=events)


def test_a_step_by_hand(tmp_path: Path) -> None:
    # given: steps of 300, 100 and 200 us; in the last one, [1000, 1200), a region with addmm and its launch, a wait on
    # the host, and two kernels of which the second runs on after the step, until 1220
    path = write(
        tmp_path / "t.json",
        [
            step(0, 0.0, 300.0),
            step(1, 400.0, 100.0),
            step(2, 1000.0, 200.0),
            event("user_annotation", "forward", 1005.0, 150.0),
            event("cpu_op", "Torch-Compiled Region: 0/0", 1010.0, 100.0),
            event("cpu_op", "aten::addmm", 1020.0, 50.0),
            event("cpu_op", "aten::expand", 1025.0, 5.0),
            launch(1040.0, 10.0, 1),
            kernel(1060.0, 40.0, 1, name="gemm"),
            event("cuda_runtime", "cudaStreamSynchronize", 1120.0, 30.0),
            launch(1160.0, 5.0, 2),
            kernel(1190.0, 30.0, 2, name="Memcpy"),
        ],
    )

    found = timeline_of(path)

    # then: it is the third, for 200 is the median; the window reaches to the end of what it launched
    assert (found.name, found.number, found.steps) == ("ProfilerStep#2", 3, 3)
    assert (found.duration_us, found.window_us) == (200.0, 220.0)
    assert (found.from_other_steps, found.after_the_window, found.merged_blocks, found.lanes_left_out) == (0, 0, 0, 0)
    assert found.lanes == (
        Lane(
            owner="thread 1",
            content="spans",
            busy_us=150.0,
            covered=0,
            blocks=(block("forward", "span", 5.0, 150.0),),
        ),
        Lane(
            owner="thread 1",
            content="regions",
            busy_us=100.0,
            covered=0,
            blocks=(block("Torch-Compiled Region: 0/0", "region", 10.0, 100.0),),
        ),
        Lane(
            owner="thread 1",
            content="operators",
            busy_us=50.0,
            covered=0,
            blocks=(block("aten::addmm", "gemm", 20.0, 50.0),),
        ),
        Lane(
            owner="thread 1",
            content="calls",
            busy_us=45.0,
            covered=0,
            blocks=(
                block("cudaLaunchKernel", "launch", 40.0, 10.0),
                block("cudaStreamSynchronize", "wait", 120.0, 30.0),
                block("cudaLaunchKernel", "launch", 160.0, 5.0),
            ),
        ),
        Lane(
            owner="stream 7",
            content="kernels",
            busy_us=70.0,
            covered=0,
            blocks=(block("gemm", "gemm", 60.0, 40.0), block("Memcpy", "copy", 190.0, 30.0)),
        ),
        Lane(
            owner="device",
            content="idle",
            busy_us=150.0,
            covered=0,
            blocks=(
                block("", "edge", 0.0, 60.0),
                block("ProfilerStep#2", "host", 100.0, 60.0),
                block("ProfilerStep#2", "launch", 160.0, 30.0),
            ),
        ),
    )


def test_small_neighbours_are_one_rectangle_as_long_as_all_of_them(tmp_path: Path) -> None:
    # given: a step of 10 ms, and 2,000 kernels of 1 us, one every 4 us, then one of 500 us
    kernels = [kernel(100.0 + 4 * i, 1.0, -5, name=f"k{i}") for i in range(2000)]
    path = write(tmp_path / "t.json", [step(0, 0.0, 10_000.0), *kernels, kernel(9_000.0, 500.0, -5, name="large")])

    found = timeline_of(path)

    lane = next(lane for lane in found.lanes if lane.content == "kernels")
    assert lane.busy_us == 2500.0
    assert lane.blocks[-1] == block("large", "other", 9_000.0, 500.0)
    assert sum(one.events for one in lane.blocks) == 2001
    assert sum(one.duration_us for one in lane.blocks) == pytest.approx(2500.0, rel=1e-9)
    assert sum(len(one.blocks) for one in found.lanes) <= MAX_BLOCKS
    assert found.merged_events == sum(one.events for lane in found.lanes for one in lane.blocks if one.events > 1)
    assert all(one.duration_us < found.merged_below_us for one in lane.blocks if one.events > 1)


def test_what_is_pushed_together_keeps_each_kinds_time(tmp_path: Path) -> None:
    # given: 3,000 small kernels of three kinds in turn, of 1, 2 and 3 us
    kinds = ("gemm", "memcpy_kernel", "reduce_kernel")
    kernels = [kernel(10.0 * i, 1.0 + i % 3, -5, name=kinds[i % 3]) for i in range(3000)]

    found = timeline_of(write(tmp_path / "t.json", [step(0, 0.0, 30_000.0), *kernels]))

    lane = next(lane for lane in found.lanes if lane.content == "kernels")
    took: dict[str, float] = {}
    for one in lane.blocks:
        took[one.kind] = took.get(one.kind, 0.0) + one.duration_us
    assert took == pytest.approx({"gemm": 1000.0, "copy": 2000.0, "reduction": 3000.0})
    assert sum(len(one.blocks) for one in found.lanes) <= MAX_BLOCKS


def test_device_work_of_another_step_is_drawn_and_counted(tmp_path: Path) -> None:
    # given: the one kernel of step 0 runs into step 1, whose own two begin after it, one of them long after
    path = write(
        tmp_path / "t.json",
        [
            step(0, 0.0, 90.0),
            step(1, 100.0, 100.0),
            step(2, 300.0, 110.0),
            launch(80.0, 5.0, 1),
            kernel(95.0, 50.0, 1, name="late"),
            launch(190.0, 5.0, 2),
            kernel(210.0, 50.0, 2, name="later"),
            launch(196.0, 3.0, 3),
            kernel(350.0, 50.0, 3, name="latest"),
        ],
    )

    found = timeline_of(path)

    # then: step 1, of 100 us, is drawn for at most 200 us
    assert (found.window_us, found.from_other_steps, found.after_the_window) == (200.0, 1, 1)
    lane = next(lane for lane in found.lanes if lane.content == "kernels")
    assert lane.blocks == (block("late", "other", 0.0, 45.0), block("later", "other", 110.0, 50.0))


def test_a_kernel_under_another_one_of_its_stream_takes_no_time_of_its_own(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", [step(0, 0.0, 100.0), kernel(10.0, 50.0, 1), kernel(20.0, 10.0, 2)])

    lane = next(lane for lane in timeline_of(path).lanes if lane.content == "kernels")

    assert (lane.busy_us, lane.covered, len(lane.blocks)) == (50.0, 1, 1)


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ([event("cpu_op", "aten::add", 0.0, 5.0)], "the trace marks no steps"),
        ([step(0, 0.0, 0.0), event("cpu_op", "aten::add", 0.0, 5.0)], "the median step of the trace took no time"),
    ],
)
def test_without_a_step_the_reason_is_said(tmp_path: Path, events: list[dict[str, Any]], reason: str) -> None:
    assert drawn(write(tmp_path / "t.json", events)) == Skipped(reason=reason)


@st.composite
def steps_of_anything(draw: st.DrawFn) -> list[dict[str, Any]]:
    times = st.tuples(st.integers(-20, 1000), st.integers(0, 300))
    operators = draw(st.lists(st.tuples(times, st.integers(1, 3)), max_size=40))
    calls = draw(st.lists(times, max_size=30))
    kernels = draw(st.lists(st.tuples(times, st.integers(5, 9), st.integers(0, 35)), max_size=60))
    return [
        step(0, 0.0, 1000.0),
        *(event("cpu_op", f"aten::add{s}", s, d, thread=thread) for (s, d), thread in operators),
        *(launch(s, d, number) for number, (s, d) in enumerate(calls)),
        *(kernel(s, d, correlation, stream=stream, name=f"k{s % 3}") for (s, d), stream, correlation in kernels),
    ]


def busy_us(spans: list[tuple[float, float]], length_us: int) -> float:
    """Of a window [0, length_us), whole microseconds covered."""
    return float(sum(any(start <= us < start + length for start, length in spans) for us in range(length_us)))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
@given(steps_of_anything())
def test_rectangles_are_disjoint_and_add_up_to_what_the_lane_was_busy(
    tmp_path: Path, events: list[dict[str, Any]]
) -> None:
    found = timeline_of(write(tmp_path / "t.json", events))

    window = round(found.window_us)
    for lane in found.lanes:
        assert sum(one.duration_us for one in lane.blocks) == pytest.approx(lane.busy_us, rel=1e-9, abs=1e-9)
        ends = [one.start_us + one.duration_us for one in lane.blocks]
        assert all(end <= later.start_us + 1e-6 for end, later in zip(ends, lane.blocks[1:], strict=False))
        assert lane.blocks[0].start_us >= 0
        assert ends[-1] <= found.window_us + 1e-6
        spans = [(e["ts"], e["dur"]) for e in events if lane_of(e) == (lane.owner, lane.content)]
        if lane.content != "idle":
            assert lane.busy_us == busy_us(spans, window)
    device = [(e["ts"], e["dur"]) for e in events if e["cat"] == "kernel"]
    idle = [lane.busy_us for lane in found.lanes if lane.content == "idle"]
    if device:
        assert sum(idle) == window - busy_us(device, window)


def lane_of(made: dict[str, Any]) -> tuple[str, str]:
    if made["cat"] == "kernel":
        return f"stream {made['args']['stream']}", "kernels"
    return f"thread {made['tid']}", {"cpu_op": "operators", "cuda_runtime": "calls"}.get(made["cat"], "")


@pytest.mark.parametrize("path", sorted(H200.glob("*/runs/*/trace.json.gz")), ids=lambda path: path.parent.name)
def test_a_step_of_an_h200_is_whole(path: Path) -> None:
    found = timeline_of(path)

    contents = {lane.content for lane in found.lanes}
    assert {"operators", "calls", "kernels", "idle"} <= contents
    assert sum(len(lane.blocks) for lane in found.lanes) <= MAX_BLOCKS
    for lane in found.lanes:
        assert sum(one.duration_us for one in lane.blocks) == pytest.approx(lane.busy_us, rel=1e-3)


def test_two_devices_have_a_stream_of_one_number_each(tmp_path: Path) -> None:
    # given: one process that works on two cards at once
    path = write(
        tmp_path / "t.json",
        [
            step(0, 0.0, 100.0),
            launch(1.0, 2.0, 1),
            launch(4.0, 2.0, 2),
            kernel(10.0, 50.0, 1) | {"pid": 0},
            kernel(20.0, 60.0, 2) | {"pid": 3},
        ],
    )

    lanes = [lane for lane in timeline_of(path).lanes if lane.content == "kernels"]
    found = kernels.breakdown(kineto.read(path), device="cuda", measured_in=PassName.TRACE, cpp_kernel_profile=False)

    assert [(lane.owner, lane.busy_us, lane.covered) for lane in lanes] == [
        ("stream 7 of device 0", 50.0, 0),
        ("stream 7 of device 3", 60.0, 0),
    ]
    assert isinstance(found, KernelBreakdown)
    assert (found.total_us, found.busy_us) == (110.0, 70.0)
    assert found.warnings == ("work ran on 2 GPUs: busy means at least one worked, idle that none did",)
