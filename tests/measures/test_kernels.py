"""The breakdown adds up: against sums over the raw JSON that share no code with it, and as a
property."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kgprof.measures import kernels
from kgprof.model import (
    GeneratorTotal,
    HostTime,
    InputCopies,
    KernelBreakdown,
    KernelKind,
    KernelRow,
    KindTotal,
    PassName,
    Skipped,
)
from kgprof.reading import kineto
from tests.analysis.events import event, step, write

TRACES = Path(__file__).parent / "traces"
ELSEWHERE = Skipped(reason="not looked at here")
H200 = (
    "strategies_all_nosched",
    "strategies_one_eager",
    "strategies_one_fused",
    "strategies_one_reduce_overhead",
    "strategies_one_torch_cond",
    "trace_default_plain",
    "trace_eager_plain",
    "trace_reduce-overhead_plain",
    "trace_reduce-overhead_stack",
)


def broken_down(path: Path, device: str, *, cpp_kernel_profile: bool = False) -> KernelBreakdown:
    found = kernels.breakdown(
        kineto.read(path),
        device=device,
        measured_in=PassName.TRACE,
        cpp_kernel_profile=cpp_kernel_profile,
    )
    assert isinstance(found, KernelBreakdown)
    return found


def raw_events(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return found


def device_time_us(events: list[dict[str, Any]]) -> float:
    """Kernel, memcpy and memset durations."""
    return float(
        sum(e["dur"] for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"))
    )


def operator_self_time_us(events: list[dict[str, Any]]) -> float:
    """Self time of the operators in the window: on each thread they add up to its outermost
    operators."""
    steps = [e for e in events if e["name"].startswith("ProfilerStep#")]
    start, end = min(e["ts"] for e in steps), max(e["ts"] + e["dur"] for e in steps)
    total = 0.0
    for op in (e for e in events if e.get("cat") == "cpu_op" and start <= e["ts"] < end):
        covers = lambda o, op=op: (  # noqa: E731
            o["tid"] == op["tid"]
            and o["ts"] <= op["ts"]
            and o["ts"] + o["dur"] >= op["ts"] + op["dur"]
        )
        outer = [o for o in events if o.get("cat") == "cpu_op" and o is not op and covers(o)]
        total += 0.0 if outer else op["dur"]
    return total


def assert_adds_up(found: KernelBreakdown) -> None:
    assert sum(row.total_us for row in found.rows) == pytest.approx(found.total_us, rel=1e-9)
    assert sum(kind.total_us for kind in found.kinds) == pytest.approx(found.total_us, rel=1e-9)
    assert sum(kind.count for kind in found.kinds) == sum(row.count for row in found.rows)
    assert sum(row.share for row in found.rows) == pytest.approx(1.0)
    assert found.busy_us + found.idle_us == pytest.approx(found.window_us, rel=1e-9)
    assert found.busy_us <= found.total_us * (1 + 1e-9)


# ---------------------------------------------------------------- real traces


@pytest.mark.parametrize("name", ["cpu_eager", "cpu_kernels"])
def test_a_cpu_trace_sums_to_an_independent_sum(name: str) -> None:
    path = TRACES / f"{name}.json.gz"

    found = broken_down(path, "cpu")

    assert found.total_us == pytest.approx(operator_self_time_us(raw_events(path)), rel=1e-3)
    assert found.steps == 6
    assert_adds_up(found)


@pytest.mark.shared
@pytest.mark.parametrize("name", H200)
def test_a_cuda_trace_sums_to_an_independent_sum(shared: Path, name: str) -> None:
    path = shared / "traces" / "h200" / f"{name}.json.gz"

    found = broken_down(path, "cuda")

    assert found.total_us == pytest.approx(device_time_us(raw_events(path)), rel=1e-6)
    assert_adds_up(found)


def test_the_cpp_kernels_of_a_real_trace_are_named_with_what_they_fused() -> None:
    found = broken_down(TRACES / "cpu_kernels.json.gz", "cpu", cpp_kernel_profile=True)

    generated = {row.name: row.ops for row in found.rows if row.generator == "cpp"}
    assert generated == {
        "graph_0_cpp_fused__softmax_add_gather_gelu_index_native_layer_norm_remainder_sum_unsqueeze_0": (  # noqa: E501
            "_softmax",
            "add",
            "gather",
            "gelu",
            "index",
            "native_layer_norm",
            "remainder",
            "sum",
            "unsqueeze",
        ),
        "graph_0_cpp_fused_add_max_1": ("add", "max"),
    }
    assert {row.count for row in found.rows if row.generator == "cpp"} == {6}
    assert found.fused_kinds == (
        KernelKind.NORMALISATION,
        KernelKind.POINTWISE,
        KernelKind.REDUCTION,
        KernelKind.INDEX,
    )
    assert found.warnings == ()


def test_without_kernel_profiling_it_is_said_where_the_cpp_kernels_time_is() -> None:
    found = broken_down(TRACES / "cpu_kernels.json.gz", "cpu", cpp_kernel_profile=False)

    (warning,) = found.warnings
    assert warning.startswith("Inductor's C++ kernels were compiled without kernel profiling")


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "launches", "kinds"),
    [
        # Counted by hand from gpu-facts and the raw traces: eager launches every kernel,
        # reduce-overhead launches one graph and copies its five inputs at each of the 12 calls.
        (
            "strategies_one_eager",
            180,
            {"gemm": 12, "pointwise": 96, "reduction": 24, "index": 36, "copy": 12},
        ),
        ("strategies_one_fused", 60, {"gemm": 12, "pointwise": 12, "reduction": 36}),
        (
            "strategies_one_torch_cond",
            105,
            {"gemm": 12, "pointwise": 33, "reduction": 60, "copy": 12},
        ),
        (
            "strategies_one_reduce_overhead",
            12,
            {"gemm": 12, "pointwise": 12, "reduction": 36, "copy": 60},
        ),
    ],
)
def test_h200_kinds_and_launches(
    shared: Path, name: str, launches: int, kinds: dict[str, int]
) -> None:
    found = broken_down(shared / "traces" / "h200" / f"{name}.json.gz", "cuda")

    assert found.launches == launches
    assert {kind.kind.value: kind.count for kind in found.kinds} == kinds
    assert found.steps == 3


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "copies"),
    [
        # Of one kernel, and one a replay: all inputs at once. The 300 other device copies are the
        # program's own.
        (
            "trace_reduce-overhead_plain",
            {"void at::native::(anonymous namespace)::multi_tensor_apply_kernel": 300},
        ),
        # five inputs before each of 12
        ("strategies_one_reduce_overhead", {"Memcpy DtoD (Device -> Device)": 60}),
        ("strategies_one_fused", None),
    ],
)
def test_h200_the_input_copies_of_graph_replays_are_named_with_their_share(
    shared: Path, name: str, copies: dict[str, int] | None
) -> None:
    path = shared / "traces" / "h200" / f"{name}.json.gz"

    found = broken_down(path, "cuda").input_copies

    if copies is None:
        assert found == Skipped(reason="the trace has no CUDA-graph launch")
        return
    assert isinstance(found, InputCopies)
    events = raw_events(path)
    of_them = [
        e
        for e in events
        if e["name"].split("<")[0] in copies and e.get("cat") in ("kernel", "gpu_memcpy")
    ]
    # that kernel's name is also that of _foreach_add: only its copies count
    if name.startswith("trace_"):
        of_them = [e for e in of_them if "at::native::Copy<" in e["name"]]
    spent_us = sum(e["dur"] for e in of_them)
    assert (found.count, len(of_them)) == (sum(copies.values()),) * 2
    assert found.total_us == pytest.approx(spent_us)
    assert found.share == pytest.approx(spent_us / device_time_us(events))


def test_an_input_copy_is_the_wrappers_and_comes_before_a_replay(tmp_path: Path) -> None:
    # given one call of compiled code that copies before its replay and after it, an operator of it
    # that copies too, and the program's own copy
    def copied(at: float, correlation: int, us: float) -> list[dict[str, Any]]:
        call = event("cuda_runtime", "cudaMemcpyAsync", at, 1.0)
        copy = event(
            "gpu_memcpy", "Memcpy DtoD (Device -> Device)", at + 200, us, thread=7, stream=7
        )
        call["args"], copy["args"] = (
            {"correlation": correlation},
            {"stream": 7, "correlation": correlation},
        )
        return [call, copy]

    events = [
        step(0, 0.0, 100.0),
        event("cpu_op", "Torch-Compiled Region: 0/0", 10.0, 60.0),
        event("user_annotation", "## Call CompiledFxGraph f00 ##", 12.0, 56.0),
        event("cpu_op", "aten::_foreach_copy_", 15.0, 5.0),
        event("cpu_op", "aten::copy_", 16.0, 3.0),
        *copied(17.0, 1, 4.0),
        event("cpu_op", "aten::contiguous", 22.0, 6.0),
        event("cpu_op", "aten::copy_", 23.0, 3.0),
        *copied(24.0, 2, 8.0),
        event("cuda_runtime", "cudaGraphLaunch", 40.0, 5.0),
        event("cpu_op", "aten::copy_", 50.0, 5.0),
        *copied(51.0, 3, 16.0),
        event("cpu_op", "aten::copy_", 80.0, 5.0),
        *copied(81.0, 4, 32.0),
    ]

    found = broken_down(write(tmp_path / "t.json", events), "cuda")

    assert found.input_copies == InputCopies(replays=1, count=1, total_us=4.0, share=4.0 / 60.0)


# ---------------------------------------------------------------- by hand


def test_a_cpu_window_by_hand(tmp_path: Path) -> None:
    # given: two steps of 100 us; in each a linear (self 10) around an addmm of 60, and 5 us on a
    # second thread
    events = []
    for number, start in enumerate((1000.0, 1100.0)):
        events += [
            step(number, start, 100.0),
            event("cpu_op", "aten::linear", start + 10, 70.0),
            event("cpu_op", "aten::addmm", start + 15, 60.0),
            event("cpu_op", "aten::add", start + 90, 5.0, thread=2),
        ]
    outside = [
        event("cpu_op", "aten::mul", 900.0, 50.0),
        event("cpu_op", "aten::mul", 1300.0, 50.0),
    ]

    found = broken_down(write(tmp_path / "t.json", [*events, *outside]), "cpu")

    # then: (the step's timeline and the host's part have tests of their own)
    found = msgspec.structs.replace(found, timeline=ELSEWHERE, host_time=ELSEWHERE)
    assert found == KernelBreakdown(
        device="cpu",
        measured_in=PassName.TRACE,
        steps=2,
        window_us=200.0,
        busy_us=150.0,
        idle_us=50.0,
        total_us=150.0,
        timeline=ELSEWHERE,
        host_time=ELSEWHERE,
        launches=Skipped(reason="a CPU run launches no GPU kernels"),
        graph_launches=Skipped(reason="a CPU run launches no CUDA graphs"),
        kinds=(
            KindTotal(kind=KernelKind.GEMM, count=4, total_us=140.0),
            KindTotal(kind=KernelKind.POINTWISE, count=2, total_us=10.0),
        ),
        generators=(GeneratorTotal(generator="aten", names=3, count=6, total_us=150.0),),
        rows=(
            _row("aten::addmm", KernelKind.GEMM, 2, 120.0, 0.8, 60.0),
            _row("aten::linear", KernelKind.GEMM, 2, 20.0, 20 / 150, 10.0),
            _row("aten::add", KernelKind.POINTWISE, 2, 10.0, 10 / 150, 5.0),
        ),
    )


@pytest.mark.parametrize("thread", [1, 2])
def test_a_step_in_which_torch_compiles_is_none_of_those_shown(tmp_path: Path, thread: int) -> None:
    """An epoch's last batch has another size, and the trace reaches into the next epoch."""
    events = []
    for number in range(6):
        events.append(step(number, 100.0 * number, 100.0))
        events.append(event("cpu_op", "aten::add", 100.0 * number + 10, 20.0))
    compiling = event("cpu_op", "_compile.compile_inner (dynamo_timed)", 140.0, 50.0, thread=thread)

    found = broken_down(write(tmp_path / "t.json", [*events, compiling]), "cpu")

    assert (found.steps, found.window_us, found.busy_us) == (4, 400.0, 80.0)
    assert any("shown are the 4 of 6 that follow one another" in each for each in found.warnings)
    assert isinstance(found.host_time, HostTime)
    assert found.host_time.steps == 4


def test_where_torch_compiles_in_each_step_no_time_per_step_is_told(tmp_path: Path) -> None:
    compiling = event("cpu_op", "_compile.compile_inner (dynamo_timed)", 10.0, 50.0)
    path = write(tmp_path / "t.json", [step(0, 0.0, 100.0), compiling])

    found = kernels.breakdown(
        kineto.read(path), device="cpu", measured_in=PassName.TRACE, cpp_kernel_profile=False
    )

    assert found == Skipped("torch compiled, or recorded a CUDA graph, in each traced step")


def _row(
    name: str, kind: KernelKind, count: int, total: float, share: float, each: float
) -> KernelRow:
    return KernelRow(
        name=name,
        kind=kind,
        generator="aten",
        count=count,
        total_us=total,
        share=share,
        min_us=each,
        median_us=each,
        max_us=each,
        rule=f"operator {name.removeprefix('aten::')}",
    )


def test_a_cuda_window_by_hand(tmp_path: Path) -> None:
    # given: kernels on two streams that overlap by 10 us, the last one ending 30 us after the step
    events = [
        step(0, 0.0, 100.0),
        event("cuda_runtime", "cudaLaunchKernel", 5.0, 2.0),
        event("cuda_driver", "cuLaunchKernelEx", 8.0, 2.0),
        event("cuda_runtime", "cudaGraphLaunch", 12.0, 2.0),
        event("cuda_runtime", "cudaMemcpyAsync", 15.0, 2.0),
        event("cuda_runtime", "cudaLaunchKernel", 150.0, 2.0),
        event("kernel", "triton_poi_fused_add_mul_0", 20.0, 40.0, thread=7, stream=7),
        event("kernel", "ampere_sgemm_128x64_nn", 50.0, 30.0, thread=8, stream=8),
        event("gpu_memcpy", "Memcpy DtoD (Device -> Device)", 110.0, 20.0, thread=7, stream=7),
        event("gpu_user_annotation", "ProfilerStep#0", 20.0, 110.0, thread=7),
        event("cpu_op", "aten::add", 0.0, 50.0),
    ]

    found = broken_down(write(tmp_path / "t.json", events), "cuda")

    assert (found.window_us, found.busy_us, found.idle_us, found.total_us) == (
        130.0,
        80.0,
        50.0,
        90.0,
    )
    assert (found.launches, found.graph_launches) == (3, 1)
    assert found.fused_kinds == (KernelKind.POINTWISE,)
    assert [(row.name, row.generator, row.ops, row.total_us) for row in found.rows] == [
        ("triton_poi_fused_add_mul_0", "triton", ("add", "mul"), 40.0),
        ("ampere_sgemm_128x64_nn", "library", (), 30.0),
        ("Memcpy DtoD (Device -> Device)", "memcpy", (), 20.0),
    ]
    assert found.warnings == (
        "the window covers the traced steps plus their GPU events: 0.0 µs before and 30.0 µs after",
    )


def test_a_cuda_run_that_used_no_gpu_is_shown_as_a_cpu_run(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", [step(0, 0.0, 10.0), event("cpu_op", "aten::add", 1.0, 5.0)])

    found = broken_down(path, "cuda")

    assert found.device == "cpu"
    assert found.warnings == (
        "nothing ran on the GPU in the traced steps: the CPU's operators are shown",
    )


def test_a_trace_without_steps_says_what_its_window_is(tmp_path: Path) -> None:
    path = write(
        tmp_path / "t.json",
        [event("cpu_op", "aten::add", 1.0, 5.0), event("cpu_op", "aten::mul", 9.0, 1.0)],
    )

    found = broken_down(path, "cpu")

    assert (found.steps, found.window_us, found.idle_us) == (0, 9.0, 3.0)
    assert found.warnings == (
        "the trace marks no steps, so the window runs from its first counted event to its last",
    )


def test_no_operator_is_no_breakdown(tmp_path: Path) -> None:
    trace = kineto.read(write(tmp_path / "t.json", [step(0, 0.0, 10.0)]))

    found = kernels.breakdown(
        trace, device="cpu", measured_in=PassName.TRACE, cpp_kernel_profile=False
    )

    assert found == Skipped(reason="the trace has neither operators nor GPU kernels")


def test_operators_outside_the_steps_only_are_no_breakdown(tmp_path: Path) -> None:
    trace = kineto.read(
        write(tmp_path / "t.json", [step(0, 0.0, 10.0), event("cpu_op", "aten::add", 20.0, 5.0)])
    )

    found = kernels.breakdown(
        trace, device="cpu", measured_in=PassName.TRACE, cpp_kernel_profile=False
    )

    assert found == Skipped(reason="no operator ran inside the traced steps")


# ---------------------------------------------------------------- as a property

NAMES = (
    "aten::add",
    "aten::mm",
    "aten::index",
    "aten::copy_",
    "aten::view",
    "triton_poi_fused_add_0",
    "gemm_kernel",
)
# nanoseconds, as microseconds with three decimals
times = st.integers(0, 2_000_000).map(lambda ns: ns / 1000)
drawn_events = st.lists(
    st.builds(
        event,
        st.sampled_from(
            ("cpu_op", "kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "python_function")
        ),
        st.sampled_from(NAMES),
        times,
        st.integers(0, 500_000).map(lambda ns: ns / 1000),
        thread=st.integers(1, 3),
        stream=st.one_of(st.none(), st.integers(0, 3)),
    ),
    min_size=1,
    max_size=60,
)
drawn_steps = st.lists(
    st.builds(step, st.integers(0, 9), times, st.integers(1, 300_000).map(lambda ns: ns / 1000)),
    max_size=4,
)


@given(drawn_events, drawn_steps, st.sampled_from(("cpu", "cuda")))
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_sums_agree_whatever_overlaps(
    tmp_path: Path, events: list[dict[str, Any]], steps: list[dict[str, Any]], device: str
) -> None:
    trace = kineto.read(write(tmp_path / "t.json", [*events, *steps]))

    found = kernels.breakdown(
        trace, device=device, measured_in=PassName.TRACE, cpp_kernel_profile=False
    )

    if isinstance(found, KernelBreakdown) and found.total_us > 0:
        assert_adds_up(found)
        if found.device == "cuda":
            assert found.total_us == pytest.approx(device_time_us(events), rel=1e-9)
