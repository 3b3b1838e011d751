"""What copying into declared buffers costs a step: counted by hand, and on a trace of the
evaluator."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from kgprof.analysis.checklist import NONE_COPIED, BufferCopies, CopyCost, buffer_copies, cost
from kgprof.model import PassName, Recording, Skipped, TracePass
from kgprof.reading import kineto, layout
from kgprof.reading.evidence import Evidence
from kgprof.reading.launches import launched
from tests.analysis.recordings import GONE
from tests.collectors import written_tensors
from tests.collectors.written_tensors import buffer

EVENT = {"ph": "X", "pid": 1, "tid": 1, "args": {}}


def operator(name: str, start: float, duration: float, **fields: Any) -> dict[str, Any]:
    return {**EVENT, "cat": "cpu_op", "name": name, "ts": start, "dur": duration, **fields}


def step(number: int) -> dict[str, Any]:
    return {
        **EVENT,
        "cat": "user_annotation",
        "name": f"ProfilerStep#{number}",
        "ts": 100.0 * number,
        "dur": 100.0,
    }


# Two steps: in each a region of 40 us that copies inside, a foreach of two copies (20 us), and a
# clone (20 us) whose copy is its own affair.
def steps() -> list[dict[str, Any]]:
    events = []
    for number in range(2):
        at = 100.0 * number
        events += [
            step(number),
            operator("Torch-Compiled Region: 0/0", at, 40),
            operator("aten::copy_", at + 5, 10),
            operator("aten::_foreach_copy_", at + 50, 20),
            operator("aten::copy_", at + 51, 5),
            operator("aten::copy_", at + 60, 5),
            operator("aten::clone", at + 75, 20),
            operator("aten::copy_", at + 80, 10),
        ]
    return events


def on_device() -> list[dict[str, Any]]:
    """Each foreach launches one kernel of 3 us, each region one of 9 us."""
    events = steps()
    for number in range(2):
        for offset, duration in ((52, 3.0), (7, 9.0)):
            at, link = 100.0 * number + offset, {"args": {"correlation": 1000 * number + offset}}
            events += [
                {
                    **EVENT,
                    **link,
                    "cat": "cuda_runtime",
                    "name": "cudaLaunchKernel",
                    "ts": at,
                    "dur": 1.0,
                },
                {
                    **EVENT,
                    **link,
                    "cat": "kernel",
                    "name": "k",
                    "ts": at + 5,
                    "dur": duration,
                    "tid": 7,
                },
            ]
    return events


def columns(tmp_path: Path, events: list[dict[str, Any]]) -> kineto.Columns:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    return kineto.read(path).columns


def test_on_a_cpu_copies_are_the_operators_that_stand_alone(tmp_path: Path) -> None:
    found = cost(columns(tmp_path, steps()), None, steps=2)

    assert found == CopyCost(kernels=2.0, share=20 / 80)


def test_on_cuda_they_are_what_these_launched(tmp_path: Path) -> None:
    traced = columns(tmp_path, on_device())
    found = cost(traced, launched(traced), steps=2)

    assert found == CopyCost(kernels=1.0, share=3 / 12)


def test_an_empty_trace_is_not_a_share_of_nothing(tmp_path: Path) -> None:
    assert cost(columns(tmp_path, [step(0)]), None, steps=1) == Skipped(
        reason="the trace has no operator"
    )
    idle = columns(tmp_path, steps())
    assert cost(idle, launched(idle), steps=2) == Skipped(
        reason="nothing ran on the GPU in the traced steps"
    )


def recorded(folder: Path, **fields: Any) -> Recording:
    whole = written_tensors.recording(
        buffers=(buffer("low", written_outside=(3, 4)), buffer("high", **fields), buffer("table"))
    )
    traced = TracePass(step_us=(100.0, 100.0), trace_file="trace.json.gz", cpp_kernel_profile=False)
    run = msgspec.structs.replace(whole.runs[0], trace=traced)
    whole = msgspec.structs.replace(whole, folder=str(folder), runs=(run,))
    path = layout.trace_path(whole, run.key, PassName.TRACE)
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": steps()}).encode()))
    return whole


def test_buffers_by_pattern_with_the_cost_of_copying(tmp_path: Path) -> None:
    whole = recorded(tmp_path, written_inside=(3, 4))

    assert buffer_copies(Evidence(whole)) == (
        BufferCopies(
            run=whole.runs[0].key,
            copied=("low",),
            dtypes=1,
            mutated=("high",),
            rebound=(),
            unwritten=("table",),
            cost=CopyCost(kernels=2.0, share=0.25),
        ),
    )


def test_without_a_trace_or_without_a_copied_buffer_the_cost_is_not_observed(
    tmp_path: Path,
) -> None:
    untraced = written_tensors.recording(buffers=(buffer(written_outside=(3,)),))
    uncopied = written_tensors.recording(buffers=(buffer(),))

    assert [found.cost for found in buffer_copies(Evidence(untraced))] == [GONE]
    assert [found.cost for found in buffer_copies(Evidence(uncopied))] == [NONE_COPIED]
    assert buffer_copies(Evidence(written_tensors.recording())) == ()


@pytest.mark.parametrize("foreach", [True, False])
def test_torchs_own_trace_has_these_operators(tmp_path: Path, foreach: bool) -> None:
    low, high, new = torch.zeros(64), torch.zeros(64), torch.ones(64)

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in range(3):
            if foreach:
                torch._foreach_copy_([low, high], [new, new])
            else:
                low.copy_(new)
                high.copy_(new)
            new.clone()
    profile.export_chrome_trace(str(tmp_path / "trace.json"))

    found = cost(kineto.read(tmp_path / "trace.json").columns, None, steps=3)
    assert isinstance(found, CopyCost)
    assert found.kernels == 2.0
    assert 0 < found.share < 1
