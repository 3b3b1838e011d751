"""MEMORY: calls from a cold start while reads of tensors, addresses, aliases and versions are watched; then, without
the probes, how much memory the later calls need."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from msgspec.structs import replace

from kgprof import model as m
from kgprof.reading.project import ProjectFiles
from kgprof.record import project_sources, timing
from kgprof.record.call_index import CallIndex
from kgprof.record.run import Run
from kgprof.record.source import listening, unavailable
from kgprof.record.syncs import Syncs
from kgprof.record.tensor_probe import TensorProbe
from kgprof.workloads.protocol import BufferSession, Session

FORGET_THE_PEAK = "5"
CLEAR_REFS, STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")
NOT_ON_A_CPU = m.Skipped(reason="nothing counts the allocations on a CPU; the resident set is measured instead")


def measure(run: Run) -> None:
    measured = memory_pass(run.session, run.device, run.options, project=run.project)
    run.write(m.PassName.MEMORY, replace(measured, code_cached=run.code_cached))


def memory_pass(session: Session, device: torch.device, options: m.Options, *, project: ProjectFiles) -> m.MemoryPass:
    """``--steps`` calls under the probes, and as many again as come after warm-up for the peaks."""
    calls = CallIndex()
    step = calls.counted(session.step)
    buffers = session.buffers if isinstance(session, BufferSession) else None
    syncs, tensors = Syncs(calls, device, project), TensorProbe(calls, buffers)
    with listening((syncs, tensors)):
        step_us = tuple(timing.wall_us(step, device) for _ in range(options.steps))
    peaks = measured_peaks(session.step, device, calls=options.steps - options.warmup)
    read, held = syncs.records(), tensors.records()
    return m.MemoryPass(
        step_us=step_us,
        steady_from=options.warmup,
        syncs=read,
        tensors=held,
        peaks=peaks,
        sources=project_sources.of_files(files_named(read, held), project),
        capture_unavailable=unavailable((syncs, tensors)),
    )


def measured_peaks(step: Callable[[], object], device: torch.device, *, calls: int) -> m.MemoryPeaks:
    """Over ``calls`` calls of ``step``, which should be warm: at their worst, and what was held before them.

    On a GPU the caching allocator counts. On a CPU nothing counts allocations; the kernel knows the largest resident
    set of the process (VmHWM in /proc/self/status), and forgets it when a 5 is written to /proc/self/clear_refs
    (proc(5)).
    """
    gc.collect()
    cannot = ""
    try:
        CLEAR_REFS.write_text(FORGET_THE_PEAK)
    except OSError as error:
        cannot = f"the peak of the resident set cannot be reset here ({CLEAR_REFS}: {error.strerror or error})"
    before = _resident("VmRSS")
    allocated: int | m.Skipped = NOT_ON_A_CPU
    on_gpu = device.type == "cuda"
    if on_gpu:
        timing.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        allocated = torch.cuda.memory_allocated(device)
    for _ in range(max(1, calls)):
        step()
    timing.synchronize(device)
    return m.MemoryPeaks(
        allocated_bytes=torch.cuda.max_memory_allocated(device) if on_gpu else NOT_ON_A_CPU,
        reserved_bytes=torch.cuda.max_memory_reserved(device) if on_gpu else NOT_ON_A_CPU,
        resident_bytes=m.Skipped(reason=cannot) if cannot else _resident("VmHWM"),
        allocated_before_bytes=allocated,
        resident_before_bytes=before,
    )


def _resident(field: str) -> int | m.Skipped:
    """Bytes; the file says kB and means KiB."""
    try:
        lines = STATUS.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        return m.Skipped(reason=f"{STATUS}: {error.strerror or error}")
    found = next((line for line in lines if line.startswith(f"{field}:")), None)
    return m.Skipped(reason=f"{STATUS} has no {field}") if found is None else int(found.split()[1]) * 1024


def files_named(read: m.SyncRecords, held: m.TensorRecords) -> Iterator[str]:
    """Every file that a stack of the probes names, and what may hold the line that their records ask for."""
    yield from files_of_reads(read)
    for graph in held.graphs:
        yield graph.file
        for write in graph.in_place:
            yield from (frame.file for frame in write.frames)
        for tensor in graph.inputs:
            yield from (frame.file for one in tensor.held for frame in one.frames)
    if any(buffer.moved for buffer in held.buffers or ()):
        modules = (getattr(module, "__file__", None) for module in tuple(sys.modules.values()))
        # No stack leads to the line that rebinds a buffer: its reader looks for it in the text.
        yield from (file for file in modules if isinstance(file, str) and file.endswith(".py"))


def files_of_reads(read: m.SyncRecords) -> Iterator[str]:
    for record in read.records:
        yield from (frame.file for frame in (*record.frames, *record.chain))
