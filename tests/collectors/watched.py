"""Programs that really run under the tensor probe, and the Recording that a reader would have of
them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
import torch

from kgprof.model import MemoryPass, Recording, RunKey, RunRecord, Skipped
from kgprof.model.compile_records import CompileRecords
from kgprof.model.memory_records import TensorRecords
from kgprof.record.ground import project_sources
from kgprof.record.listeners.call_index import CallIndex
from kgprof.record.listeners.tensor_probe import TensorProbe
from tests.analysis import recordings
from tests.analysis.recordings import FUSED, GONE

CALLS, STEADY_FROM = 8, 3

Step = Callable[[int], object]


def watch(
    step: Step, *, buffers: Callable[[], Mapping[str, torch.Tensor]] | None = None
) -> TensorRecords:
    """CALLS calls of ``step``, which gets the index of each; what it returns is not kept."""
    torch._dynamo.reset()
    calls = CallIndex()
    probe = TensorProbe(calls, buffers)
    try:
        with probe:
            for index in range(CALLS):
                with calls.call():
                    step(index)
    finally:
        torch._dynamo.reset()
    assert probe.unavailable == ""
    return probe.records()


def recording(
    tensors: TensorRecords, *files: str, key: RunKey = FUSED, device: str = "cpu"
) -> Recording:
    """With the text of ``files``, as COMPILE brings it along."""
    project = project_sources.project_files("no workload of kgprof's")
    lines = [{"frame": {"file": file}} for file in files]
    records = CompileRecords(sources=project_sources.gather(lines, project))
    return of(
        msgspec.structs.replace(recordings.run(key), memory=memory(tensors), records=records),
        device=device,
    )


def of(run: RunRecord, *, device: str = "cpu") -> Recording:
    whole = recordings.recording(run, baseline=None)
    plan = msgspec.structs.replace(whole.header.plan, device=device)
    return msgspec.structs.replace(whole, header=msgspec.structs.replace(whole.header, plan=plan))


def memory(tensors: TensorRecords | Skipped) -> MemoryPass:
    return MemoryPass(
        step_us=(1000.0,) * CALLS, steady_from=STEADY_FROM, syncs=GONE, tensors=tensors, peaks=GONE
    )


def lines_with(file: str, mark: str) -> list[int]:
    """The lines that end in the comment ``# mark``."""
    with open(file, encoding="utf-8") as text:
        return [
            number for number, line in enumerate(text, 1) if line.rstrip().endswith(f"# {mark}")
        ]
