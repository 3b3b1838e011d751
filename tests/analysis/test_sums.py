"""What has to add up, on drawn traces: nested, overlapping and out of order, over several threads
and streams.

Whatever is held against a sum is computed here from the drawn events, with integers and none of the
package's code.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kgprof.measures import kernels
from kgprof.measures.kernel_kinds import of_device_event
from kgprof.model import Communication, DeviceIdle, HostTime, KernelBreakdown, PassName
from kgprof.reading import kineto
from tests.analysis.events import event, step, write

WITHIN = 1e-3  # the 0.1 %; what follows agrees far closer
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
KERNELS = (
    "ampere_sgemm_128x64_nn",
    "triton_poi_fused_add_mul_0",
    "triton_red_fused_native_layer_norm_1",
    "void flash_fwd_kernel<x>()",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
    "void at::native::elementwise_kernel<128, 4, x>()",
    "unheard_of",
)
OPERATORS = (
    "aten::add",
    "aten::mm",
    "aten::copy_",
    "aten::linear",
    "Torch-Compiled Region: 0/0",
    "cpp_fused_sum_0",
)
SPANS = (
    "forward",
    "Torch-Compiled Region: 0/0",
    "Torch-Compiled Region: 1/0",
    "## Call CompiledFxGraph f00 ##",
)

nanoseconds = st.integers(0, 400_000)
short = st.integers(1, 60_000)
threads, streams = st.integers(1, 3), st.integers(7, 10)


def us(ns: int) -> float:
    return ns / 1000


@st.composite
def traces(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Steps one after the other on a thread; around them and in them whatever comes, in any order
    in the file."""
    events: list[dict[str, Any]] = []
    at = draw(nanoseconds)
    for number in range(draw(st.integers(1, 4))):
        length = draw(short)
        events.append(step(number, us(at), us(length)))
        at += length + draw(st.integers(0, 20_000))
    for name, start, length, thread in draw(
        st.lists(st.tuples(st.sampled_from(OPERATORS), nanoseconds, short, threads), max_size=25)
    ):
        events.append(event("cpu_op", name, us(start), us(length), thread=thread))
    for name, start, length, thread in draw(
        st.lists(st.tuples(st.sampled_from(SPANS), nanoseconds, short, threads), max_size=6)
    ):
        events.append(event("user_annotation", name, us(start), us(length), thread=thread))
    for correlation, (start, thread, late, length, stream, name, category, launched) in enumerate(
        draw(
            st.lists(
                st.tuples(
                    nanoseconds,
                    threads,
                    # from the call to the work: clocks of two devices
                    st.integers(-5_000, 100_000),
                    st.integers(0, 60_000),
                    streams,
                    st.sampled_from(KERNELS),
                    st.sampled_from(DEVICE),
                    st.booleans(),
                ),
                min_size=1,
                max_size=40,
            )
        )
    ):
        work = event(
            category, name, us(max(0, start + late)), us(length), thread=stream, stream=stream
        )
        work["args"]["correlation"] = correlation
        events.append(work)
        if launched:
            call = event("cuda_runtime", "cudaLaunchKernel", us(start), us(500), thread=thread)
            call["args"] = {"correlation": correlation}
            events.append(call)
    return draw(st.permutations(events))


def nested(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The host's events, without those that reach out of a kept one of their thread: no call stack
    holds both."""
    host = [one for one in events if one["cat"] in ("cpu_op", "user_annotation")]
    kept: list[dict[str, Any]] = []
    for one in sorted(host, key=lambda one: not one["name"].startswith("ProfilerStep#")):
        if not any(
            one["tid"] == other["tid"] and crosses(whole_ns(one), whole_ns(other)) for other in kept
        ):
            kept.append(one)
    return [one for one in host if one in kept]


def crosses(one: tuple[int, int], other: tuple[int, int]) -> bool:
    (first, first_end), (second, second_end) = sorted((one, other))
    return first < second < first_end < second_end


def covered_ns(intervals: Iterable[tuple[int, int]]) -> int:
    """The length of their union, one after the other."""
    total, reached = 0, -1
    for start, end in sorted(intervals):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


def whole_ns(one: dict[str, Any]) -> tuple[int, int]:
    start = round(one["ts"] * 1000)
    return start, start + round(one["dur"] * 1000)


def broken_down(path: Path, events: list[dict[str, Any]], device: str) -> KernelBreakdown:
    trace = kineto.read(write(path, events))
    found = kernels.breakdown(
        trace, device=device, measured_in=PassName.TRACE, cpp_kernel_profile=False
    )
    assert isinstance(found, KernelBreakdown)
    return found


@given(traces())
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_device_trace_adds_up(tmp_path: Path, events: list[dict[str, Any]]) -> None:
    work = [one for one in events if one["cat"] in DEVICE]
    by_kind: dict[str, int] = defaultdict(int)
    for one in work:
        start, end = whole_ns(one)
        by_kind[of_device_event(one["name"], one["cat"]).kind.value] += end - start
    total_us = sum(by_kind.values()) / 1000

    found = broken_down(tmp_path / "t.json", events, "cuda")

    assert found.total_us == pytest.approx(total_us, rel=WITHIN)
    assert {kind.kind.value: kind.total_us for kind in found.kinds} == pytest.approx(
        {kind: ns / 1000 for kind, ns in by_kind.items()}, rel=WITHIN
    )
    assert sum(kind.total_us for kind in found.kinds) == pytest.approx(found.total_us, rel=WITHIN)
    assert sum(row.total_us for row in found.rows) == pytest.approx(found.total_us, rel=WITHIN)
    assert found.busy_us == pytest.approx(covered_ns(map(whole_ns, work)) / 1000, rel=WITHIN)
    assert found.busy_us + found.idle_us == pytest.approx(found.window_us, rel=WITHIN)
    assert isinstance(found.idle, DeviceIdle)
    causes = (found.idle.host_us, found.idle.launch_us, found.idle.unknown_us, found.idle.edges_us)
    assert sum(causes) == pytest.approx(found.idle_us, rel=WITHIN)
    assert sum(span.total_us for span in found.idle.host_spans) == pytest.approx(
        found.idle.host_us, rel=WITHIN
    )
    assert isinstance(found.communication, Communication)
    assert found.communication.total_us == pytest.approx(
        by_kind["communication"] / 1000, rel=WITHIN
    )


@given(traces())
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_what_each_step_launched_adds_up_to_all_device_time(
    tmp_path: Path, events: list[dict[str, Any]]
) -> None:
    # given: the step in which each kernel's call began, looked up one by one
    calls = {one["args"]["correlation"]: one for one in events if one["cat"] == "cuda_runtime"}
    steps = {
        one["name"]: (one["tid"], *whole_ns(one))
        for one in events
        if one["name"].startswith("ProfilerStep#")
    }
    by_step: Counter[str] = Counter()
    for one in events:
        if one["cat"] in DEVICE:
            call = calls.get(one["args"]["correlation"])
            start, end = whole_ns(one)
            by_step[_step_of(call, steps)] += end - start

    found = broken_down(tmp_path / "t.json", events, "cuda")

    for spans in (found.by_step, found.by_region, found.by_span):
        assert sum(span.total_us for span in spans) == pytest.approx(found.total_us, rel=WITHIN)
        assert sum(span.count for span in spans) == sum(row.count for row in found.rows)
        assert spans[-1].span == "(unattributed)"
    told = {span.span: span.total_us for span in found.by_step if span.total_us}
    assert told == pytest.approx(
        {name: ns / 1000 for name, ns in by_step.items() if ns}, rel=WITHIN
    )


def _step_of(call: dict[str, Any] | None, steps: dict[str, tuple[int, int, int]]) -> str:
    if call is None:
        return "(unattributed)"
    began, _ = whole_ns(call)
    inside = [
        name
        for name, (thread, start, end) in steps.items()
        if thread == call["tid"] and start <= began < end
    ]
    return inside[0] if inside else "(unattributed)"


@given(traces().map(nested))
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_cpu_trace_adds_up(tmp_path: Path, events: list[dict[str, Any]]) -> None:
    steps = [whole_ns(one) for one in events if one["name"].startswith("ProfilerStep#")]
    first, last = min(start for start, _ in steps), max(end for _, end in steps)
    clipped = [
        (one["tid"], max(first, start), min(last, end))
        for one in events
        if one["cat"] == "cpu_op"
        for start, end in [whole_ns(one)]
        if start < last and end > first
    ]
    if not clipped:
        return
    # on each thread self times add up to what its operators cover
    self_ns = sum(
        covered_ns((start, end) for of, start, end in clipped if of == tid)
        for tid in {t for t, _, _ in clipped}
    )

    found = broken_down(tmp_path / "t.json", events, "cpu")

    assert found.window_us == pytest.approx((last - first) / 1000, rel=WITHIN)
    assert found.total_us == pytest.approx(self_ns / 1000, rel=WITHIN)
    assert sum(kind.total_us for kind in found.kinds) == pytest.approx(found.total_us, rel=WITHIN)
    assert sum(row.total_us for row in found.rows) == pytest.approx(found.total_us, rel=WITHIN)
    assert found.busy_us == pytest.approx(
        covered_ns((start, end) for _, start, end in clipped) / 1000, rel=WITHIN
    )
    assert found.busy_us + found.idle_us == pytest.approx(found.window_us, rel=WITHIN)
    assert isinstance(found.host_time, HostTime)
    assert sum(part.mean_us for part in found.host_time.parts) == pytest.approx(
        found.host_time.mean_us, rel=WITHIN
    )
