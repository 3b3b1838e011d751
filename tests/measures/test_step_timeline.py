"""The median step as lanes: by hand, on generated steps, and on an H200's recording."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kgprof.measures import kernels
from kgprof.measures.kernel_kinds import Kinds
from kgprof.measures.step_timeline import MAX_EVENTS, MAX_IDLE, step_timeline
from kgprof.model import KernelBreakdown, Lane, PassName, Skipped, StepTimeline
from kgprof.reading import kineto
from kgprof.reading.launches import launched
from tests.analysis.events import event, step, write
from tests.gathering import for_all
from tests.measures.test_idle import kernel, launch

H200 = Path(__file__).resolve().parents[2] / "fixtures" / "recordings" / "cuda_graphs_h200"


def drawn(path: Path) -> StepTimeline | Skipped:
    columns = kineto.read(path).columns
    return step_timeline(columns, launched(columns), Kinds())


def timeline_of(path: Path) -> StepTimeline:
    found = drawn(path)
    assert isinstance(found, StepTimeline)
    return found


Shown = tuple[str, str, float, float]  # name, kind, start and duration in us


def shown(found: StepTimeline, lane: Lane) -> tuple[Shown, ...]:
    columns = zip(lane.name, lane.kind, lane.start_ns, lane.duration_ns, strict=True)
    return tuple(
        (found.names[n], found.kinds[k], start / 1000, length / 1000)
        for n, k, start, length in columns
    )


def lane_with(found: StepTimeline, content: str) -> Lane:
    return next(lane for lane in found.lanes if lane.content == content)


def test_a_step_by_hand(tmp_path: Path) -> None:
    # given: steps of 300, 100 and 200 us; in the last one, [1000, 1200), a region with addmm and
    # its launch, a wait on the host, and two kernels of which the second runs on after the step,
    # until 1220
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

    # then: it is the third, for 200 is the median; the window reaches to the end of what it
    # launched
    assert (found.name, found.number, found.steps) == ("ProfilerStep#2", 3, 3)
    assert (found.duration_us, found.window_us) == (200.0, 220.0)
    assert (found.from_other_steps, found.after_the_window, found.lanes_left_out) == (0, 0, 0)
    assert [
        (lane.owner, lane.content, lane.busy_us, lane.covered, shown(found, lane))
        for lane in found.lanes
    ] == [
        ("thread 1", "spans", 150.0, 0, (("forward", "span", 5.0, 150.0),)),
        ("thread 1", "regions", 100.0, 0, (("Torch-Compiled Region: 0/0", "region", 10.0, 100.0),)),
        ("thread 1", "operators", 50.0, 0, (("aten::addmm", "gemm", 20.0, 50.0),)),
        (
            "thread 1",
            "calls",
            45.0,
            0,
            (
                ("cudaLaunchKernel", "launch", 40.0, 10.0),
                ("cudaStreamSynchronize", "wait", 120.0, 30.0),
                ("cudaLaunchKernel", "launch", 160.0, 5.0),
            ),
        ),
        (
            "stream 7",
            "kernels",
            70.0,
            0,
            (("gemm", "gemm", 60.0, 40.0), ("Memcpy", "copy", 190.0, 30.0)),
        ),
        (
            "device",
            "idle",
            150.0,
            0,
            (
                ("", "edge", 0.0, 60.0),
                ("ProfilerStep#2", "host", 100.0, 60.0),
                ("ProfilerStep#2", "launch", 160.0, 30.0),
            ),
        ),
    ]
    # then: the first call launched the first kernel, the third one the second
    assert [lane.call for lane in found.lanes] == [(), (), (), (), (0, 2), ()]
    assert (found.left_out_below_us, {lane.left_out for lane in found.lanes}) == (0.0, {0})


def test_of_more_events_than_are_kept_the_shortest_are_left_out_and_counted(tmp_path: Path) -> None:
    # given: launches of 2 us of as many kernels as there is room for, every third of 3 us, the
    # others of 1 us
    many = MAX_EVENTS
    events = [
        event
        for i in range(many)
        for event in (
            launch(10.0 * i, 2.0, i),
            kernel(10.0 * i + 4, 1.0 + 2 * (i % 3 == 0), i, name=f"k{i % 3}"),
        )
    ]
    path = write(
        tmp_path / "t.json", [step(0, 0.0, 10.0 * many), *events, kernel(2.0, 1.0, -5, stream=8)]
    )

    found = timeline_of(path)

    # then: in order, with what is lost counted and the links of what is kept whole
    kernels_kept, calls = lane_with(found, "kernels"), lane_with(found, "calls")
    kept = {(lane.owner, lane.content): len(lane.name) for lane in found.lanes}
    assert kept == {
        ("thread 1", "calls"): MAX_EVENTS - -(-many // 3),
        ("stream 7", "kernels"): -(-many // 3),  # those of 3 us, and no shorter one
        ("stream 8", "kernels"): 0,
        ("device", "idle"): MAX_IDLE,
    }
    assert (
        sum(lane.left_out for lane in found.lanes if lane.content != "idle")
        == 2 * many + 1 - MAX_EVENTS
    )
    for lane in found.lanes:
        assert sum(lane.duration_ns) / 1000 + lane.left_out_us == pytest.approx(lane.busy_us)
        assert list(lane.start_ns) == sorted(lane.start_ns)
    pairs = zip(kernels_kept.start_ns, kernels_kept.call, strict=True)
    apart = {start - calls.start_ns[call] for start, call in pairs if call >= 0}
    assert apart == {4000}


def test_device_work_of_another_step_is_drawn_and_counted(tmp_path: Path) -> None:
    # given: the one kernel of step 0 runs into step 1, whose own two begin after it, one of them
    # long after
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
    lane = lane_with(found, "kernels")
    assert shown(found, lane) == (("late", "other", 0.0, 45.0), ("later", "other", 110.0, 50.0))
    assert lane.call == (-1, 0)


def test_a_kernel_under_another_one_of_its_stream_takes_no_time_of_its_own(tmp_path: Path) -> None:
    path = write(
        tmp_path / "t.json", [step(0, 0.0, 100.0), kernel(10.0, 50.0, 1), kernel(20.0, 10.0, 2)]
    )

    lane = lane_with(timeline_of(path), "kernels")

    assert (lane.busy_us, lane.covered, len(lane.name)) == (50.0, 1, 1)


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ([event("cpu_op", "aten::add", 0.0, 5.0)], "the trace marks no steps"),
        (
            [step(0, 0.0, 0.0), event("cpu_op", "aten::add", 0.0, 5.0)],
            "the median step of the trace took no time",
        ),
    ],
)
def test_without_a_step_the_reason_is_said(
    tmp_path: Path, events: list[dict[str, Any]], reason: str
) -> None:
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
        *(
            kernel(s, d, correlation, stream=stream, name=f"k{s % 3}")
            for (s, d), stream, correlation in kernels
        ),
    ]


def busy_us(spans: list[tuple[float, float]], length_us: int) -> float:
    """Of a window [0, length_us), whole microseconds covered."""
    return float(
        sum(any(start <= us < start + length for start, length in spans) for us in range(length_us))
    )


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None
)
@given(steps_of_anything())
def test_events_are_disjoint_and_add_up_to_what_the_lane_was_busy(
    tmp_path: Path, events: list[dict[str, Any]]
) -> None:
    found = timeline_of(write(tmp_path / "t.json", events))

    window = round(found.window_us)
    for lane in found.lanes:
        assert sum(lane.duration_ns) / 1000 == pytest.approx(lane.busy_us, rel=1e-9, abs=1e-9)
        ends = [
            start + length for start, length in zip(lane.start_ns, lane.duration_ns, strict=True)
        ]
        assert all(end <= later for end, later in zip(ends, lane.start_ns[1:], strict=False))
        assert lane.start_ns[0] >= 0
        assert ends[-1] <= found.window_us * 1000
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
    return f"thread {made['tid']}", {"cpu_op": "operators", "cuda_runtime": "calls"}.get(
        made["cat"], ""
    )


@for_all(sorted(H200.glob("*/runs/*/trace.json.gz")), lambda path: path.parent.name)
def test_a_step_of_an_h200_is_whole(path: Path) -> None:
    found = timeline_of(path)

    contents = {lane.content for lane in found.lanes}
    assert {"operators", "calls", "kernels", "idle"} <= contents
    assert sum(len(lane.name) for lane in found.lanes) <= MAX_EVENTS + MAX_IDLE
    for lane in found.lanes:
        assert sum(lane.duration_ns) / 1000 + lane.left_out_us == pytest.approx(
            lane.busy_us, rel=1e-3
        )
    launches = sum(found.kinds[kind] == "launch" for lane in found.lanes for kind in lane.kind)
    links = {call for lane in found.lanes for call in lane.call if call >= 0}
    assert 0 < len(links) <= launches


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
    found = kernels.breakdown(
        kineto.read(path), device="cuda", measured_in=PassName.TRACE, cpp_kernel_profile=False
    )

    assert [(lane.owner, lane.busy_us, lane.covered) for lane in lanes] == [
        ("stream 7 of device 0", 50.0, 0),
        ("stream 7 of device 3", 60.0, 0),
    ]
    assert isinstance(found, KernelBreakdown)
    assert (found.total_us, found.busy_us) == (110.0, 70.0)
    assert found.warnings == (
        "work ran on 2 GPUs: busy means at least one worked, idle that none did",
    )
