"""How much memory torch's allocator held over one step: from the allocations and frees that a trace recorded with
``profile_memory`` holds."""

from __future__ import annotations

import numpy as np

from kgprof import model as m
from kgprof.measures.step_timeline import median_step
from kgprof.reading.evidence import RunEvidence
from kgprof.reading.kineto import NONE, Columns

_ENTRIES = 240  # of the curve
NOT_RECORDED = m.Skipped(reason="its traces hold no allocations (recorded without profile_memory)")


def shown(run: RunEvidence) -> m.MemoryCurve | m.Skipped:
    """From STACK, whose times are no times of the workload's anyway; or from a trace that was taken in."""
    for name in (m.PassName.STACK, m.PassName.TRACE):
        trace = run.trace(name)
        if not isinstance(trace, m.Skipped) and len(trace.columns.memory.at_ns):
            return memory_curve(trace.columns, measured_in=name)
    stack = run.trace(m.PassName.STACK)
    if isinstance(stack, m.Skipped) and not run.whole.recording.header.plan.trace_files:
        return m.Skipped(reason=f"allocations are recorded by STACK: {stack.reason}")
    return NOT_RECORDED


def memory_curve(columns: Columns, *, measured_in: m.PassName) -> m.MemoryCurve | m.Skipped:
    """Of the median step, on the device with the most allocations in it; a GPU's before the CPU's."""
    step = median_step(columns)
    if isinstance(step, m.Skipped):
        return step
    mark, _, steps = step
    start_ns, end_ns = int(columns.start_ns[mark]), int(columns.end_ns[mark])
    points = columns.memory
    inside = (points.at_ns >= start_ns) & (points.at_ns < end_ns)
    devices = points.device[inside]
    if not len(devices):
        return m.Skipped(reason="nothing was allocated or freed in its median traced step")
    gpus = devices[devices != NONE]
    device = int(np.bincount(gpus).argmax()) if len(gpus) else NONE
    mine = np.flatnonzero(points.device == device)
    mine = mine[np.argsort(points.at_ns[mine], kind="stable")]
    at, held = points.at_ns[mine], points.allocated_bytes[mine]
    first, end = int(np.searchsorted(at, start_ns)), int(np.searchsorted(at, end_ns))
    before = int(held[first - 1]) if first else int(held[first] - points.change_bytes[mine[first]])
    within = np.arange(first, end)
    # Of each of equal stretches of time the least and the most; of few all.
    if len(within) > _ENTRIES:
        stretch = (at[within] - start_ns) * (_ENTRIES // 2) // (end_ns - start_ns)
        parts = np.split(within, np.flatnonzero(np.diff(stretch)) + 1)
        within = np.unique([each for part in parts for each in (part[held[part].argmin()], part[held[part].argmax()])])
    return m.MemoryCurve(
        device="cpu" if device == NONE else f"cuda:{device}",
        measured_in=measured_in,
        step=columns.names[columns.name[mark]],
        steps=steps,
        duration_us=(end_ns - start_ns) / 1000,
        events=end - first,
        before_bytes=before,
        peak_bytes=max(before, int(held[first:end].max())),
        after_bytes=int(held[end - 1]),
        at_us=tuple(((at[within] - start_ns) / 1000).tolist()),
        allocated_bytes=tuple(held[within].tolist()),
    )
