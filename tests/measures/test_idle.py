"""Idle time by cause: by hand, on generated traces, and on traces of an H200."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kgprof.measures import collectives, kernels
from kgprof.measures.idle import BETWEEN_SPANS, IN_A_STEP, device_idle
from kgprof.model import (
    BETWEEN_COPIES,
    READS_ON_CPU,
    DeviceIdle,
    HostSpan,
    KernelBreakdown,
    PassName,
    SpanTotal,
)
from kgprof.reading import kineto, timeline
from kgprof.reading.launches import launched, waits
from tests.analysis.events import event, step, write
from tests.conftest import SHARED

H200 = SHARED / "traces" / "h200"


def launch(
    start: float, duration: float, correlation: int, *, name: str = "cudaLaunchKernel"
) -> dict[str, Any]:
    made = event("cuda_runtime", name, start, duration)
    return {**made, "args": {"correlation": correlation}}


def kernel(
    start: float, duration: float, correlation: int, *, stream: int = 7, name: str = "k"
) -> dict[str, Any]:
    made = event("kernel", name, start, duration, thread=stream, stream=stream)
    return {**made, "pid": 0, "args": {"stream": stream, "correlation": correlation}}


def broken_down(path: Path) -> KernelBreakdown:
    found = kernels.breakdown(
        kineto.read(path), device="cuda", measured_in=PassName.TRACE, cpp_kernel_profile=False
    )
    assert isinstance(found, KernelBreakdown)
    return found


def test_a_read_without_a_call_of_cudas_is_one_on_the_cpu(tmp_path: Path) -> None:
    # given: two reads of 10 us while the GPU is idle, the second of which copies from the GPU
    path = write(
        tmp_path / "t.json",
        [
            step(0, 0.0, 100.0),
            launch(5.0, 1.0, 1),
            kernel(10.0, 10.0, 1),
            event("cpu_op", "aten::item", 30.0, 10.0),
            event("cpu_op", "aten::_local_scalar_dense", 31.0, 8.0),
            event("cpu_op", "aten::_local_scalar_dense", 50.0, 10.0),
            launch(52.0, 1.0, 3, name="cudaMemcpyAsync"),
            launch(70.0, 1.0, 2),
            kernel(75.0, 10.0, 2),
        ],
    )

    idle = broken_down(path).idle

    assert isinstance(idle, DeviceIdle)
    spans = {span.name: span.total_us for span in idle.host_spans}
    assert (spans[READS_ON_CPU], spans["aten::_local_scalar_dense"]) == (10.0, 9.0)
    assert "aten::item" not in spans


def test_a_long_operator_without_a_call_of_cudas_computes_on_the_cpu(tmp_path: Path) -> None:
    # given: cat of 300 us, add of 300 us that launches, and a view of 10 us, while the GPU is idle
    path = write(
        tmp_path / "t.json",
        [
            step(0, 0.0, 1000.0),
            launch(5.0, 1.0, 1),
            kernel(10.0, 10.0, 1),
            event("cpu_op", "aten::cat", 30.0, 300.0),
            event("cpu_op", "aten::add", 400.0, 300.0),
            launch(690.0, 1.0, 3),
            kernel(695.0, 5.0, 3),
            event("cpu_op", "aten::view", 710.0, 10.0),
            event("cpu_op", "aten::add", 730.0, 300.0),
            launch(900.0, 1.0, 2),
            kernel(905.0, 10.0, 2),
        ],
    )

    idle = broken_down(path).idle

    assert isinstance(idle, DeviceIdle)
    spans = {span.words: span.total_us for span in idle.host_spans if span.name != IN_A_STEP}
    assert spans == {
        "aten::cat, which launches nothing": 300.0,
        "aten::add": 290.0 + 170.0,
        "aten::view": 10.0,
    }


def test_a_gap_is_cut_where_the_host_asked_for_what_ended_it(tmp_path: Path) -> None:
    # given: kernels at [10, 20), [50, 60) and [65, 70) of a step [0, 100); the second was launched
    # at 42 inside addmm, the third at 44, before the second had begun
    path = write(
        tmp_path / "t.json",
        [
            step(0, 0.0, 100.0),
            launch(5.0, 1.0, 1),
            kernel(10.0, 10.0, 1),
            event("cpu_op", "aten::addmm", 30.0, 20.0),
            launch(42.0, 1.0, 2),
            kernel(50.0, 10.0, 2),
            launch(44.0, 1.0, 3),
            kernel(65.0, 5.0, 3),
        ],
    )

    found = broken_down(path).idle

    # then: of [20, 50) the host had [20, 42), 12 of them inside addmm; [42, 50) and [60, 65) were
    # launches
    assert found == DeviceIdle(
        total_us=75.0,
        host_us=22.0,
        launch_us=13.0,
        unknown_us=0.0,
        edges_us=40.0,
        gaps=2,
        host_spans=(
            HostSpan(name="aten::addmm", total_us=12.0),
            HostSpan(name=IN_A_STEP, total_us=10.0),
        ),
    )


def test_time_outside_of_every_span_and_work_without_a_call_are_said(tmp_path: Path) -> None:
    path = write(
        tmp_path / "t.json",
        [
            launch(0.0, 1.0, 1),
            kernel(1.0, 9.0, 1),
            launch(15.0, 1.0, 2),
            kernel(20.0, 5.0, 2),
            kernel(40.0, 5.0, 9),
        ],
    )

    found = broken_down(path).idle

    assert isinstance(found, DeviceIdle)
    assert (found.host_us, found.launch_us, found.unknown_us) == (5.0, 5.0, 15.0)
    assert found.host_spans == (HostSpan(name=BETWEEN_SPANS, total_us=5.0),)


def test_device_time_is_attributed_to_step_region_and_span_of_its_launch(tmp_path: Path) -> None:
    # given: a CUDA graph of two kernels replayed in region 0/1 of the user's span, and a kernel
    # launched before both
    replay = launch(20.0, 1.0, 5, name="cudaGraphLaunch")
    path = write(
        tmp_path / "t.json",
        [
            launch(1.0, 1.0, 1),
            kernel(2.0, 1.0, 1),
            step(3, 10.0, 50.0),
            event("user_annotation", "decode", 12.0, 40.0),
            event("cpu_op", "Torch-Compiled Region: 0/1", 15.0, 20.0),
            event("user_annotation", "## Call CompiledFxGraph abc ##", 16.0, 15.0),
            replay,
            kernel(30.0, 4.0, 5),
            kernel(34.0, 4.0, 5),
            kernel(100.0, 2.0, 99),
        ],
    )

    found = broken_down(path)

    without = SpanTotal(span="(unattributed)", count=2, total_us=3.0)
    assert found.by_step == (SpanTotal(span="ProfilerStep#3", count=2, total_us=8.0), without)
    assert found.by_region == (SpanTotal(span="0/1", count=2, total_us=8.0), without)
    assert found.by_span == (SpanTotal(span="decode", count=2, total_us=8.0), without)


spans = st.tuples(st.integers(0, 80), st.integers(0, 30))
device_events = st.tuples(spans, st.integers(0, 2), st.integers(1, 9))
host_events = st.tuples(
    spans, st.sampled_from(["cpu_op", "user_annotation", "cuda_runtime"]), st.integers(1, 9)
)


@given(
    st.lists(device_events, min_size=1, max_size=12),
    st.lists(host_events, max_size=12),
    st.booleans(),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_sums_agree_whatever_overlaps_and_in_whatever_order(
    tmp_path: Path,
    on_device: list[tuple[tuple[int, int], int, int]],
    on_host: list[tuple[tuple[int, int], str, int]],
    stepped: bool,
) -> None:
    # given: several streams, nested and overlapping spans, correlations that lead nowhere or twice
    # somewhere
    events = [
        kernel(start, length, correlation, stream=stream)
        for (start, length), stream, correlation in on_device
    ]
    for (start, length), category, correlation in on_host:
        made = event(category, f"{category}-{correlation}", start, length, thread=correlation % 2)
        events.append(
            {**made, "args": {"correlation": correlation}} if category == "cuda_runtime" else made
        )
    steps = [step(0, 10.0, 30.0), step(1, 40.0, 30.0)] if stepped else []

    found = broken_down(write(tmp_path / "t.json", [*events, *steps]))

    idle = found.idle
    assert isinstance(idle, DeviceIdle)
    assert sum(kind.total_us for kind in found.kinds) == pytest.approx(found.total_us)
    assert found.busy_us + idle.total_us == pytest.approx(found.window_us)
    assert idle.host_us + idle.launch_us + idle.unknown_us + idle.edges_us == pytest.approx(
        idle.total_us
    )
    assert sum(span.total_us for span in idle.host_spans) == pytest.approx(idle.host_us)
    for totals in (found.by_step, found.by_region, found.by_span):
        assert totals[-1].span == collectives.UNATTRIBUTED
        assert sum(total.total_us for total in totals) == pytest.approx(found.total_us)
        assert sum(total.count for total in totals) == len(on_device)


@given(
    st.lists(spans.map(lambda pair: (pair[0], pair[0] + pair[1])), max_size=12),
    st.lists(spans.map(lambda pair: (pair[0], pair[0] + pair[1])), max_size=5),
)
def test_owners_within_gaps_are_the_owners_moment_by_moment(
    intervals: list[tuple[int, int]], busy: list[tuple[int, int]]
) -> None:
    gaps = timeline.gaps(busy)
    found = timeline.owners(intervals)

    owner, length = found.within(gaps)

    moments = [moment for start, end in gaps.tolist() for moment in range(start, end)]
    slow = [int(found.at(timeline.as_intervals([(m, m)])[:, 0])[0]) for m in moments]
    assert sorted((o, slow.count(o)) for o in set(slow)) == sorted(
        (o, int(length[owner == o].sum())) for o in set(owner.tolist())
    )


@pytest.mark.shared
@pytest.mark.parametrize(
    "name", ["one_eager", "one_fused", "one_torch_cond", "one_reduce_overhead", "all_nosched"]
)
def test_every_microsecond_of_an_h200_trace_is_assigned_once(name: str) -> None:
    found = broken_down(H200 / f"strategies_{name}.json.gz")

    idle = found.idle
    assert isinstance(idle, DeviceIdle)
    assert idle.unknown_us == 0
    assert idle.host_us + idle.launch_us + idle.edges_us == pytest.approx(found.idle_us)
    # every kernel was launched in one of the user's spans, graph replays among them
    assert found.by_span[-1] == SpanTotal(span=collectives.UNATTRIBUTED, count=0, total_us=0.0)
    assert sum(total.total_us for total in found.by_span) == pytest.approx(found.total_us)


@pytest.mark.shared
def test_what_a_graph_replay_runs_belongs_to_its_region() -> None:
    found = broken_down(H200 / "strategies_one_reduce_overhead.json.gz")

    assert [(total.span, total.count) for total in found.by_region] == [
        ("0/1", 120),
        (collectives.UNATTRIBUTED, 0),
    ]


def test_a_trace_without_gaps_has_no_idle(tmp_path: Path) -> None:
    trace = kineto.read(write(tmp_path / "t.json", [launch(0, 1, 1), kernel(1, 5, 1)]))
    window = timeline.window_of([(1000, 6000)])

    assert device_idle(trace.columns, launched(trace.columns), window) == DeviceIdle(
        total_us=0.0,
        host_us=0.0,
        launch_us=0.0,
        unknown_us=0.0,
        edges_us=0.0,
        gaps=0,
        host_spans=(),
    )


def test_calls_in_which_the_host_waits_are_counted_but_for_the_recorders_own(
    tmp_path: Path,
) -> None:
    # given: two waits in steps, one of them on another thread, one outside of every step, and one
    # in a span of kgprof's
    def wait(name: str, start: float, thread: int = 1) -> dict[str, Any]:
        return event("cuda_runtime", name, start, 1.0, thread=thread)

    path = write(
        tmp_path / "t.json",
        [
            step(0, 10.0, 50.0),
            step(1, 60.0, 40.0),
            wait("cudaStreamSynchronize", 20.0),
            wait("cudaEventSynchronize", 70.0, thread=2),
            wait("cudaDeviceSynchronize", 5.0),
            event("user_annotation", "kgprof: GPU sync", 90.0, 5.0),
            wait("cudaDeviceSynchronize", 91.0),
        ],
    )
    columns = kineto.read(path).columns

    assert waits(columns, timeline.profiler_steps(columns)).sum() == 2


def test_what_a_data_loader_runs_in_the_training_process_is_the_loaders(tmp_path: Path) -> None:
    # given: between kernels at [10, 20) and [60, 70) the loader's span [22, 50), which resizes a
    # picture in [25, 45); the same operator runs outside of it in [51, 55)
    path = write(
        tmp_path / "t.json",
        [
            step(0, 0.0, 100.0),
            launch(5.0, 1.0, 1),
            kernel(10.0, 10.0, 1),
            event("user_annotation", "enumerate(DataLoader)#_Single.__next__", 22.0, 28.0),
            event("cpu_op", "aten::upsample", 25.0, 20.0),
            event("cpu_op", "aten::upsample", 51.0, 4.0),
            launch(58.0, 1.0, 2),
            kernel(60.0, 10.0, 2),
        ],
    )

    idle = broken_down(path).idle

    assert isinstance(idle, DeviceIdle)
    spans = {span.name: span.total_us for span in idle.host_spans}
    assert spans["enumerate(DataLoader)#_Single.__next__"] == 28.0
    assert spans["aten::upsample"] == 4.0


@pytest.mark.parametrize("named", ["augment", "Optimizer.step#AdamW8bit.step"])
def test_what_has_a_name_of_its_own_is_python_outside_of_operators(
    tmp_path: Path, named: str
) -> None:
    # given: [20, 58) without work, of which the program's record_function, or torch's around an
    # optimizer's step, has [22, 50), and an operator in it [25, 30)
    path = write(
        tmp_path / "t.json",
        [
            step(0, 0.0, 100.0),
            launch(5.0, 1.0, 1),
            kernel(10.0, 10.0, 1),
            event("user_annotation", named, 22.0, 28.0),
            event("cpu_op", "aten::add", 25.0, 5.0),
            launch(58.0, 1.0, 2),
            kernel(60.0, 10.0, 2),
        ],
    )

    idle = broken_down(path).idle

    assert isinstance(idle, DeviceIdle)
    spans = {span.name: span.total_us for span in idle.host_spans}
    assert spans == {f"{IN_A_STEP} in {named}": 23.0, IN_A_STEP: 10.0, "aten::add": 5.0}


def test_what_computes_on_the_cpu_between_two_copies_is_no_part_of_them(tmp_path: Path) -> None:
    # given: a batch that is converted in [22, 422) before the second copy
    def copy(start: float, correlation: int) -> dict[str, Any]:
        made = kernel(start, 10.0, correlation, name="Memcpy HtoD (Pageable -> Device)")
        return {**made, "cat": "gpu_memcpy"}

    path = write(
        tmp_path / "t.json",
        [
            step(0, 0.0, 500.0),
            launch(5.0, 1.0, 1, name="cudaMemcpyAsync"),
            copy(10.0, 1),
            event("cpu_op", "aten::copy_", 22.0, 400.0),
            launch(432.0, 1.0, 2, name="cudaMemcpyAsync"),
            copy(440.0, 2),
        ],
    )

    idle = broken_down(path).idle

    assert isinstance(idle, DeviceIdle)
    assert idle.host_spans == (
        HostSpan(name="aten::copy_", total_us=400.0, on_cpu=True),
        HostSpan(name=BETWEEN_COPIES, total_us=12.0),
    )


def test_what_stands_between_two_copies_from_pageable_memory_is_the_copies(tmp_path: Path) -> None:
    # given: copies at [10, 20), [40, 50) and a kernel at [70, 80); the host asked for the second
    # copy at 32 and for the kernel at 66
    def copy(start: float, correlation: int) -> dict[str, Any]:
        made = kernel(start, 10.0, correlation, name="Memcpy HtoD (Pageable -> Device)")
        return {**made, "cat": "gpu_memcpy"}

    path = write(
        tmp_path / "t.json",
        [
            step(0, 0.0, 100.0),
            launch(5.0, 1.0, 1, name="cudaMemcpyAsync"),
            copy(10.0, 1),
            event("cpu_op", "aten::to", 22.0, 9.0),
            launch(32.0, 1.0, 2, name="cudaMemcpyAsync"),
            copy(40.0, 2),
            launch(66.0, 1.0, 3),
            kernel(70.0, 10.0, 3),
        ],
    )

    idle = broken_down(path).idle

    assert isinstance(idle, DeviceIdle)
    assert (idle.host_us, idle.launch_us, idle.copy_launch_us) == (28.0, 12.0, 8.0)
    assert idle.host_spans == (
        HostSpan(name=IN_A_STEP, total_us=16.0),
        HostSpan(name=BETWEEN_COPIES, total_us=12.0),
    )
