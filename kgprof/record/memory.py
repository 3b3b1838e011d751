"""MEMORY: calls from a cold start while reads of tensors, addresses, aliases and versions are watched; then, without
the probes, how much memory the later calls need."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import torch

from kgprof import model as m
from kgprof.reading.project import ProjectFiles
from kgprof.record import project_sources, timing
from kgprof.record.call_index import CallIndex, CountedSession
from kgprof.record.peak_memory import measured_peaks
from kgprof.record.run import Run
from kgprof.record.source import listening, unavailable
from kgprof.record.syncs import Syncs
from kgprof.record.tensor_probe import TensorProbe
from kgprof.workloads.protocol import BufferSession, Session


def measure(run: Run) -> None:
    run.write(m.PassName.MEMORY, memory_pass(run.session, run.device, run.options, project=run.project))


def memory_pass(session: Session, device: torch.device, options: m.Options, *, project: ProjectFiles) -> m.MemoryPass:
    """``--steps`` calls under the probes, and as many again as come after warm-up for the peaks."""
    calls = CallIndex()
    counted = CountedSession(session, calls)
    buffers = session.buffers if isinstance(session, BufferSession) else None
    syncs, tensors = Syncs(calls, device, project), TensorProbe(calls, device, buffers)
    with listening((syncs, tensors)):
        step_us = tuple(timing.wall_us(counted.step, device) for _ in range(options.steps))
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
