"""MEMORY: calls from a cold start while reads of tensors, addresses, aliases and versions are
watched; then, without the probes, how much memory the later calls need."""

import gc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from msgspec.structs import replace

from kgprof import model as m
from kgprof.reading.project import ProjectFiles
from kgprof.record.ground import project_sources
from kgprof.record.ground.alone import alone
from kgprof.record.ground.run import Run
from kgprof.record.ground.source import listening, unavailable
from kgprof.record.listeners.call_index import CallIndex
from kgprof.record.listeners.syncs import Syncs
from kgprof.record.listeners.tensor_probe import TensorProbe
from kgprof.record.passes import timing
from kgprof.workloads.protocol import BufferSession, Session, Step

FORGET_THE_PEAK = "5"
CLEAR_REFS = Path("/proc/self/clear_refs")
STATUS = Path("/proc/self/status")
NOT_ON_A_CPU = m.Skipped("CPU allocations are not counted; the resident set is measured instead")


def measure(run: Run) -> None:
    """Loads the run as well: the probes have to stand when a graph is compiled, which an import may
    do."""
    calling = run.phase(m.PassName.MEMORY)
    measured = memory_pass(
        run.load, run.device, run.options, project=run.project, beside=run.beside, calling=calling
    )
    run.write(m.PassName.MEMORY, replace(measured, code_cached=run.code_cached))


def memory_pass(
    load: Callable[[], Session],
    device: torch.device,
    options: m.Options,
    *,
    project: ProjectFiles,
    beside: str = "",
    calling: AbstractContextManager[None] | None = None,
) -> m.MemoryPass:
    """``--steps`` calls of what ``load`` gives under the probes, and as many again as come after
    warm-up for the peaks.

    ``beside``: of Job. The steady calls, which say what the probes cost, are made alone.
    ``calling`` is entered around the calls."""
    calls = CallIndex()
    syncs = Syncs(calls, device, project)
    tensors = TensorProbe(calls)
    with listening((syncs, tensors)):
        session = load()
        if isinstance(session, BufferSession):
            tensors.declare(session.buffers)
        step = calls.counted(session.step)
        warm_up = min(options.warmup, options.steps)
        with calling or nullcontext():
            step_us = [timing.wall_us(step, device) for _ in range(warm_up)]
            with alone(beside):
                step_us += [timing.wall_us(step, device) for _ in range(options.steps - warm_up)]
    peaks = measured_peaks(session.step, device, calls=options.steps - options.warmup)
    read = syncs.records()
    held = tensors.renumbered(lambda call: call)
    return m.MemoryPass(
        step_us=tuple(step_us),
        steady_from=options.warmup,
        syncs=read,
        tensors=held,
        peaks=peaks,
        sources=project_sources.of_files(files_named(read, held), project),
        capture_unavailable=unavailable((syncs, tensors)),
    )


class Peaks:
    """From its making to ``answer``: the most memory that was held, and what was held before.

    On a GPU the caching allocator counts. On a CPU nothing counts allocations; the kernel knows the
    largest resident set of the process (VmHWM in /proc/self/status), and forgets it when a 5 is
    written to /proc/self/clear_refs (proc(5)).
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._on_gpu, self._cannot = device, device.type == "cuda", ""
        try:
            CLEAR_REFS.write_text(FORGET_THE_PEAK)
        except OSError as error:
            why = f"{CLEAR_REFS}: {error.strerror or error}"
            self._cannot = f"the peak of the resident set cannot be reset here ({why})"
        self._before = _resident("VmRSS")
        if self._on_gpu:
            timing.synchronize(device)
            torch.cuda.reset_peak_memory_stats(device)

    def answer(self) -> m.MemoryPeaks:
        device = self._device
        timing.synchronize(device)
        peaks = m.MemoryPeaks(
            allocated_bytes=NOT_ON_A_CPU,
            reserved_bytes=NOT_ON_A_CPU,
            resident_bytes=m.Skipped(self._cannot) if self._cannot else _resident("VmHWM"),
            resident_before_bytes=self._before,
            graph_pool_bytes=NOT_ON_A_CPU,
            graph_pool_allocated_bytes=0,
        )
        if not self._on_gpu:
            return peaks
        pools = _graph_pools(device)
        return replace(
            peaks,
            allocated_bytes=torch.cuda.max_memory_allocated(device),
            reserved_bytes=torch.cuda.max_memory_reserved(device),
            graph_pool_bytes=sum(segment["total_size"] for segment in pools),
            graph_pool_allocated_bytes=sum(segment["allocated_size"] for segment in pools),
        )


def _graph_pools(device: torch.device) -> list[dict[str, Any]]:
    """The allocator's segments in a pool of their own, as those of CUDA graphs are; (0, 0) is
    everybody's."""
    index = torch.cuda.current_device() if device.index is None else device.index
    segments: list[dict[str, Any]] = torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
    return [
        one
        for one in segments
        if one["device"] == index and tuple(one["segment_pool_id"]) != (0, 0)
    ]


def measured_peaks(step: Step, device: torch.device, *, calls: int) -> m.MemoryPeaks:
    """Over ``calls`` calls of ``step``, which should be warm."""
    gc.collect()
    peaks = Peaks(device)
    for _ in range(max(1, calls)):
        step()
    return peaks.answer()


def _resident(field: str) -> int | m.Skipped:
    """Bytes; the file says kB and means KiB."""
    try:
        lines = STATUS.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        return m.Skipped(f"{STATUS}: {error.strerror or error}")
    found = next((line for line in lines if line.startswith(f"{field}:")), None)
    return m.Skipped(f"{STATUS} has no {field}") if found is None else int(found.split()[1]) * 1024


def files_named(read: m.SyncRecords, held: m.TensorRecords) -> Iterator[str]:
    """Every file that a stack of the probes names, and what may hold the line that their records
    ask for."""
    for record in read.records:
        yield from (frame.file for frame in (*record.frames, *record.chain))
    for graph in held.graphs:
        yield graph.file
        for write in graph.in_place:
            yield from (frame.file for frame in write.frames)
        for tensor in graph.inputs:
            yield from (frame.file for one in tensor.held for frame in one.frames)
    if any(buffer.moved for buffer in held.buffers or ()):
        # No stack leads to the line that rebinds a buffer: its reader looks for it in the text.
        yield from project_sources.imported_files()
