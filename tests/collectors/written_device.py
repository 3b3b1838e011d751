"""Runs on a GPU whose steps, kernels and launches are chosen."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from kgprof.model import PassName, Recording, RunKey, Skipped, TimingPass, TracePass
from kgprof.reading import layout
from tests import scratch
from tests.analysis import recordings

STEPS = 4
TRACED_US = 1_000.0  # of a step under the profiler
RUN = RunKey(strategy="fused", mode="default")


def steps(
    *,
    step_us: float | None,
    kernels: int,
    kernel_us: float,
    launches: int | None = None,
    mode: str = "default",
    in_operators: float = 0.0,
) -> Recording:
    """Steps of ``step_us`` in TIMING (None: there was none); in TRACE each is TRACED_US long and
    holds the kernels.

    ``launches``: calls of the launch API in a step; None: one for each kernel. ``in_operators``:
    the part of the time between two launches that the CPU spends in operators (two in turn, so that
    none stands out), 0..1.
    """
    events = steps_of(kernels, kernel_us, kernels if launches is None else launches, in_operators)
    return traced(events, step_us=step_us, mode=mode)


def traced(
    events: Iterable[dict[str, Any]], *, step_us: float | None, mode: str = "default"
) -> Recording:
    """A run on an H100 with these events in its TRACE."""
    folder = scratch.new_folder()
    key = msgspec.structs.replace(RUN, mode=mode)
    path = layout.run_folder(folder, key) / layout.TRACE_FILES[PassName.TRACE]
    path.parent.mkdir(parents=True)
    card = {"name": "NVIDIA H100", "computeMajor": 9, "computeMinor": 0}
    text = json.dumps({"deviceProperties": [card], "traceEvents": list(events)})
    path.write_bytes(gzip.compress(text.encode()))
    timing = TimingPass(clock="cuda events", step_us=((step_us or 0.0,) * 5,), evaluation_s=())
    run = msgspec.structs.replace(
        recordings.run(key, evaluation_s=None),
        timing=Skipped(reason="TIMING was not requested") if step_us is None else timing,
        trace=TracePass(
            step_us=(TRACED_US,) * STEPS,
            trace_file=path.name,
            cpp_kernel_profile=False,
        ),
    )
    whole = recordings.recording(run, baseline=None)
    plan = msgspec.structs.replace(whole.header.plan, device="cuda")
    return msgspec.structs.replace(
        whole, folder=str(folder), header=msgspec.structs.replace(whole.header, plan=plan)
    )


def steps_of(
    kernels: int, kernel_us: float, launches: int, in_operators: float
) -> Iterator[dict[str, Any]]:
    """Kernels evenly over each step, each launched just before it begins; operators of the CPU
    before each launch."""
    event = {"ph": "X", "pid": 1, "tid": 1}
    apart = TRACED_US / kernels
    for step in range(STEPS):
        start = step * TRACED_US
        yield {
            **event,
            "cat": "user_annotation",
            "name": f"ProfilerStep#{step}",
            "ts": start,
            "dur": TRACED_US,
        }
        yield {
            **event,
            "args": {},
            "cat": "cuda_runtime",
            "name": "cudaMemcpyAsync",
            "ts": start,
            "dur": 0.5,
        }
        for number in range(kernels):
            linked = {"correlation": 1_000 * step + number + 1}
            at = start + (number + 0.5) * apart
            if in_operators:
                name = ("aten::mm", "aten::add")[number % 2]
                busy = in_operators * (apart - kernel_us)
                yield {**event, "cat": "cpu_op", "name": name, "ts": at - busy, "dur": busy}
            if number < launches:
                yield {
                    **event,
                    "args": linked,
                    "cat": "cuda_runtime",
                    "name": "cudaLaunchKernel",
                    "ts": at - 1,
                    "dur": 0.5,
                }
            on_gpu = {"args": {**linked, "stream": 7}, "tid": 7}
            yield {**event, **on_gpu, "cat": "kernel", "name": "k", "ts": at, "dur": kernel_us}


def launched_in(
    span: tuple[str, str],
    *kernels: tuple[str, str, float],
    span_us: float = 100.0,
    late_us: float = 0.0,
) -> Iterator[dict[str, Any]]:
    """In each step a host event (category, name) of ``span_us`` that launches these (category,
    name, microseconds), one after the other from ``late_us`` behind its start."""
    event = {"ph": "X", "pid": 1, "tid": 1}
    for step in range(STEPS):
        start = step * TRACED_US
        yield {
            **event,
            "cat": "user_annotation",
            "name": f"ProfilerStep#{step}",
            "ts": start,
            "dur": TRACED_US,
        }
        yield {**event, "cat": span[0], "name": span[1], "ts": start + 1, "dur": span_us}
        at = start + 1 + late_us
        for number, (category, name, us) in enumerate(kernels):
            linked = {"args": {"correlation": 1_000 * step + number + 1}}
            call = "cudaMemcpyAsync" if category == "gpu_memcpy" else "cudaLaunchKernel"
            yield {
                **event,
                **linked,
                "cat": "cuda_runtime",
                "name": call,
                "ts": start + 2 + number,
                "dur": 0.5,
            }
            linked["args"]["stream"] = 7
            yield {**event, **linked, "tid": 7, "cat": category, "name": name, "ts": at, "dur": us}
            at += us


def replays(graphs: int, kernel_us: float) -> Iterator[dict[str, Any]]:
    """In each step so many CUDA graphs, evenly over it, with one kernel each."""
    event = {"ph": "X", "pid": 1, "tid": 1}
    for step in range(STEPS):
        start = step * TRACED_US
        yield {
            **event,
            "cat": "user_annotation",
            "name": f"ProfilerStep#{step}",
            "ts": start,
            "dur": TRACED_US,
        }
        for number in range(graphs):
            at, linked = (
                start + number * TRACED_US / graphs,
                {"correlation": 1_000 * step + number + 1},
            )
            yield {
                **event,
                "args": linked,
                "cat": "cuda_runtime",
                "name": "cudaGraphLaunch",
                "ts": at,
                "dur": 5.0,
            }
            made = {"args": {**linked, "stream": 7}, "tid": 7, "cat": "kernel", "name": "k"}
            yield {**event, **made, "ts": at + 6, "dur": kernel_us}


def unlike_steps(*work_us: float) -> Iterator[dict[str, Any]]:
    """Steps of TRACED_US with one kernel each, of so many microseconds."""
    event = {"ph": "X", "pid": 1, "tid": 1}
    for step, us in enumerate(work_us):
        start, linked = step * TRACED_US, {"correlation": step + 1}
        mark = {"cat": "user_annotation", "name": f"ProfilerStep#{step}"}
        yield {**event, **mark, "ts": start, "dur": TRACED_US}
        call = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "args": linked}
        yield {**event, **call, "ts": start + 10, "dur": 0.5}
        kernel = {"cat": "kernel", "name": "k", "args": {**linked, "stream": 7}, "tid": 7}
        yield {**event, **kernel, "ts": start + 20, "dur": us}


def timed(recording: Recording, step_us: tuple[float, ...]) -> Recording:
    """The same with these steps in TIMING."""
    (run,) = recording.runs
    timing = TimingPass(clock="cuda events", step_us=(step_us,), evaluation_s=())
    run = msgspec.structs.replace(run, timing=timing)
    return msgspec.structs.replace(recording, runs=(run,))


def with_bare(recording: Recording, bare_us: float) -> Recording:
    """The same where so many microseconds a step passed just before the traced ones."""
    (run,) = recording.runs
    assert isinstance(run.trace, TracePass)
    trace = msgspec.structs.replace(run.trace, bare_us=bare_us)
    return msgspec.structs.replace(recording, runs=(msgspec.structs.replace(run, trace=trace),))
