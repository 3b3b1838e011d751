"""Runs on a GPU that lose time in one known way, four steps each."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from kgprof.model import (
    CompileRecords,
    HostLine,
    HostLines,
    KernelOrigin,
    KernelOrigins,
    Recording,
    SourceFile,
    SourceLine,
    Sources,
    SyncRecord,
    TimingPass,
    TracePass,
)
from tests.analysis import recordings
from tests.collectors import written_syncs
from tests.collectors.written_device import (
    STEPS,
    TRACED_US,
    launched_in,
    replays,
    steps,
    traced,
)

SIMT = "void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nt_align1>(Params)"
TF32 = "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_execute_kernel__5x_cublas"
BF16 = "nvjet_sm90_tst_64x64_64x13_2x1_v_bz_bias_TNT"
OPERATOR = ("cpu_op", "aten::mm")


def of_kernels(
    *kernels: tuple[str, float], span: tuple[str, str] = OPERATOR, step_us: float | None = 500.0
) -> Recording:
    return traced(
        launched_in(span, *(("kernel", name, us) for name, us in kernels)), step_us=step_us
    )


def exact_float32() -> Recording:
    """400 of 500 us on CUDA cores."""
    return of_kernels((SIMT, 400.0))


def only_tf32() -> Recording:
    return of_kernels((TF32, 400.0))


def math_attention() -> Recording:
    """Its matmuls are float32 on CUDA cores too, and are not told twice."""
    return of_kernels(
        (SIMT, 300.0),
        ("softmax", 100.0),
        span=("cpu_op", "aten::_scaled_dot_product_attention_math"),
    )


def slow_loader(workers: bool = False, *, launches: bool = False) -> Recording:
    """The batch takes 300 us in which the GPU has nothing to do, and then 100 us of work, which
    next() itself ``launches`` or what comes after it."""
    kind = "_MultiProcessingDataLoaderIter" if workers else "_SingleProcessDataLoaderIter"
    span = ("user_annotation", f"enumerate(DataLoader)#{kind}.__next__")
    events = list(launched_in(span, ("kernel", "k", 100.0), span_us=300.0, late_us=300.0))
    for event in events:
        if event["cat"] == "cuda_runtime" and not launches:
            event["ts"] += 299.5
    return traced(events, step_us=None)


def loaded_on_a_cpu(share: float, workers: int = 0) -> Recording:
    """A script on a CPU, of whose steps of 1 ms ``next()`` takes this share."""
    step_us, steps = 1000.0, 20
    timing = TimingPass(
        clock="perf_counter",
        step_us=((step_us,) * steps,),
        evaluation_s=(),
        loader_us=(share * step_us,) * steps,
        loader_workers=workers,
        step="an iteration",
    )
    run = replace(recordings.run(recordings.EAGER), timing=timing)
    return recordings.recording(run, baseline=None)


def pageable_copy() -> Recording:
    """A copy of 200 us, and 50 us of the call in which nothing runs."""
    span = ("cpu_op", "aten::copy_")
    copy = ("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 200.0)
    return traced(launched_in(span, copy, span_us=250.0), step_us=None)


def unfused_optimizer(kernel: str = "") -> Recording:
    """Three kernels of 50 us, and 50 us in which the optimizer runs on the CPU alone."""
    span = ("user_annotation", "Optimizer.step#AdamW.step")
    names = (f"multi_tensor_apply_kernel<{each}>" for each in ("Lerp", "Sqrt", "Addcdiv"))
    kernels = (("kernel", kernel or name, 50.0) for name in names)
    return traced(launched_in(span, *kernels, span_us=200.0), step_us=None)


def small_graphs(graphs: int = 20) -> Recording:
    """With 10 us of work in each, in a step of 500 us."""
    return traced(replays(graphs, 10.0), step_us=500.0)


def own_kernel(
    *, us: float = 300.0, text: str = "@triton.jit\ndef row_sums(x, out):\n    pass\n"
) -> Recording:
    """A kernel of the program's, beside a matmul of 100 us, in each step."""
    recorded = of_kernels(("row_sums", us), (BF16, 100.0))
    sources = Sources(files={"/src/shop/model.py": SourceFile(sha256="", text=text)})
    (run,) = recorded.runs
    run = replace(run, records=CompileRecords(records=(), sources=sources))
    return replace(recorded, runs=(run,))


def sampled(*reads: SyncRecord, in_step_us: float = 500.0, kernel_us: float = 10.0) -> Recording:
    """Ten kernels with Python between them, and samples in two lines of one function; a traced step
    takes 1,000 us, and 800 without the profiler."""
    recorded = steps(step_us=800.0, kernels=10, kernel_us=kernel_us)
    (run,) = recorded.runs
    assert isinstance(run.trace, TracePass)
    lines = ((7, 0.25), (9, 0.75))
    rows = tuple(
        HostLine(
            at=SourceLine(file="/src/shop/model.py", line=line, function="jitter"),
            us=share * in_step_us * STEPS,
        )
        for line, share in lines
    )
    trace = replace(run.trace, host_lines=HostLines(rows=rows))
    run = replace(run, trace=trace, memory=written_syncs.memory(*reads))
    return replace(recorded, runs=(run,))


def slow_operator(
    *names: str,
    operator_us: float = 800.0,
    second_us: float = 0.0,
    launches: int = 1,
    step_us: float | None = 900.0,
    lines: tuple[int, ...] = (),
    beside: bool = False,
) -> Recording:
    """In each step of 1,000 us these operators, one after the other, with so many launches at the
    end of each. ``second_us``: how much longer the second step and its operators are; ``lines``: of
    the last one; ``beside``: a launch after them, in none of them."""
    names = names or ("aten::attend",)
    events: list[dict[str, Any]] = []
    for step in range(STEPS):
        start, longer_us = step * TRACED_US, 0.0
        if step == 1:
            longer_us = second_us
        if step > 1:
            start += second_us
        marked = _event("user_annotation", f"ProfilerStep#{step}", start, TRACED_US + longer_us)
        events.append(marked)
        each_us = (operator_us + longer_us) / len(names)
        for place, name in enumerate(names):
            at = start + 100 + place * each_us
            events.append(_event("cpu_op", name, at, each_us))
            for number in range(launches):
                events += _launch(at + each_us - 4 + number / launches, len(events) + 1)
        if beside:
            events += _launch(start + 100 + operator_us, len(events) + 1)
    recorded = traced(events, step_us=step_us)
    (run,) = recorded.runs
    origins = KernelOrigins(
        origins=tuple(
            KernelOrigin(
                compile_id="",
                kernel=f"torch.ops.aten.{names[-1].removeprefix('aten::')}",
                number=number,
                lines=(SourceLine(file="/src/shop/model.py", line=line, function="attend"),),
            )
            for number, line in enumerate(lines)
        )
    )
    return replace(recorded, runs=(replace(run, kernel_origins=origins),))


def _launch(at: float, correlation: int) -> list[dict[str, Any]]:
    linked = {"correlation": correlation}
    call = _event("cuda_runtime", "cudaLaunchKernel", at, 0.1)
    kernel = _event("kernel", "attends", at + 2, 0.1)
    return [{**call, "args": linked}, {**kernel, "args": {**linked, "stream": 7}, "tid": 7}]


def _event(category: str, name: str, at: float, us: float) -> dict[str, Any]:
    return {"ph": "X", "pid": 1, "tid": 1, "cat": category, "name": name, "ts": at, "dur": us}
