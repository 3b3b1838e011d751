"""Runs on a GPU whose steps, kernels and launches are chosen."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from kgprof.model import PassName, Recording, RunKey, Skipped, TimingPass, TracePass
from kgprof.reading import layout
from tests.analysis import recordings

STEPS = 4
TRACED_US = 1_000.0  # of a step under the profiler
RUN = RunKey(strategy="fused", mode="default")

_FOLDERS: list[tempfile.TemporaryDirectory[str]] = []  # until the interpreter ends


def steps(
    *, step_us: float | None, kernels: int, kernel_us: float, launches: int | None = None, mode: str = "default"
) -> Recording:
    """Steps of ``step_us`` in TIMING (None: there was none); in TRACE each is TRACED_US long and holds the kernels.

    ``launches``: calls of the launch API in a step; None: one for each kernel.
    """
    folder = tempfile.TemporaryDirectory(prefix="kgprof-written-")
    _FOLDERS.append(folder)
    key = msgspec.structs.replace(RUN, mode=mode)
    path = layout.run_folder(Path(folder.name), key) / layout.TRACE_FILES[PassName.TRACE]
    path.parent.mkdir(parents=True)
    events = list(_events(kernels, kernel_us, kernels if launches is None else launches))
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    timing = TimingPass(clock="cuda events", step_us=((step_us or 0.0,) * 5,), evaluation_s=())
    traced = msgspec.structs.replace(
        recordings.run(key, evaluation_s=None),
        timing=Skipped(reason="TIMING was not asked for") if step_us is None else timing,
        trace=TracePass(step_us=(TRACED_US,) * STEPS, trace_file=path.name, trace_bytes=1, cpp_kernel_profile=False),
    )
    whole = recordings.recording(traced, baseline=None)
    plan = msgspec.structs.replace(whole.header.plan, device="cuda")
    return msgspec.structs.replace(whole, folder=folder.name, header=msgspec.structs.replace(whole.header, plan=plan))


def _events(kernels: int, kernel_us: float, launches: int) -> Iterator[dict[str, Any]]:
    """Launches at the beginning of each step, kernels evenly over it."""
    event = {"ph": "X", "pid": 1, "tid": 1}
    for step in range(STEPS):
        start = step * TRACED_US
        yield {**event, "cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": start, "dur": TRACED_US}
        yield {**event, "args": {}, "cat": "cuda_runtime", "name": "cudaMemcpyAsync", "ts": start, "dur": 0.5}
        for number in range(launches):
            call = {"args": {"correlation": 1_000 * step + number + 1}}
            yield {**event, **call, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": start + number, "dur": 0.5}
        for number in range(kernels):
            made = {"args": {"correlation": 1_000 * step + number + 1, "stream": 7}, "tid": 7}
            at = start + (number + 0.5) * TRACED_US / kernels
            yield {**event, **made, "cat": "kernel", "name": "k", "ts": at, "dur": kernel_us}
