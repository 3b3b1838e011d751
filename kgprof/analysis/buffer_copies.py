"""How declared buffers get their next values, and what the copies cost: kernels a step, and their share of the time.

A copy is ``copy_`` or ``_foreach_copy_`` called from eager code, so outside of every compiled region and of every
other operator. A trace does not say into which tensor, so all such copies of a step are counted, whether they go into
a declared buffer or not.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kgprof import model as m
from kgprof.collectors import addresses
from kgprof.collectors.addresses import COPIED_INTO, MUTATED, REBOUND, UNWRITTEN, BufferUse
from kgprof.reading import timeline
from kgprof.reading.evidence import Evidence, RunEvidence
from kgprof.reading.kineto import Columns
from kgprof.reading.launches import Launched, launched_in_trace
from kgprof.reading.timeline import NOBODY

COPIES = ("aten::_foreach_copy_", "aten::copy_")
ONE_COPY = "aten::copy_"
NONE_COPIED = m.Skipped(reason="no declared buffer is copied into outside of compiled code")

Mask = npt.NDArray[np.bool_]


class CopyCost(m.Tagged, frozen=True, kw_only=True, tag="copycost"):
    """Per step of ``measured_in``: CUDA: kernels and copies on the device; CPU: ``aten::copy_`` operators."""

    kernels: float
    duration_us: float
    share: float  # of the duration of all kernels (CUDA) or of all outermost operators (CPU), 0..1
    measured_in: m.PassName


class BufferCopies(m.Model, frozen=True, kw_only=True):
    """One run that declares buffers; their names by pattern."""

    run: m.RunKey
    copied: tuple[str, ...]
    mutated: tuple[str, ...]  # inside a compiled region
    rebound: tuple[str, ...]
    unwritten: tuple[str, ...]
    cost: CopyCost | m.Skipped


def buffer_copies(evidence: Evidence) -> tuple[BufferCopies, ...]:
    """In the plan's order; nothing for a run that declares no buffers or whose MEMORY pass watched none."""
    uses: dict[m.RunKey, list[BufferUse]] = {}
    for event in evidence.once(addresses.collect):
        if isinstance(event, BufferUse):
            uses.setdefault(event.run, []).append(event)
    return tuple(_of_run(run, uses[run.key]) for run in evidence.runs if run.key in uses)


def _of_run(run: RunEvidence, uses: list[BufferUse]) -> BufferCopies:
    named = {
        pattern: tuple(use.name for use in uses if use.pattern == pattern)
        for pattern in (COPIED_INTO, MUTATED, REBOUND, UNWRITTEN)
    }
    return BufferCopies(
        run=run.key,
        copied=named[COPIED_INTO],
        mutated=named[MUTATED],
        rebound=named[REBOUND],
        unwritten=named[UNWRITTEN],
        cost=_cost(run) if named[COPIED_INTO] else NONE_COPIED,
    )


def _cost(run: RunEvidence) -> CopyCost | m.Skipped:
    traced, trace, work = run.record.trace, run.trace(m.PassName.TRACE), run.once(launched_in_trace)
    if isinstance(traced, m.Skipped):
        return traced
    if isinstance(trace, m.Skipped):
        return trace
    assert isinstance(work, Launched)
    return cost(trace.columns, work if run.whole.device == "cuda" else None, steps=len(traced.step_us))


def cost(columns: Columns, work: Launched | None, *, steps: int) -> CopyCost | m.Skipped:
    """What the copies in a trace of ``steps`` steps cost. ``work``: what ran on the GPU; None for a CPU run."""
    outermost = _outermost(columns)
    copies = outermost & columns.named(*COPIES)
    if not outermost.any() or not steps:
        return m.Skipped(reason="the trace holds no operator")
    kernels, spent_ns, total_ns = (
        _on_host(columns, copies, outermost) if work is None else _on_device(columns, copies, work)
    )
    if not total_ns:
        return m.Skipped(reason="nothing ran on the GPU in the traced steps")
    return CopyCost(
        kernels=kernels / steps,
        duration_us=spent_ns / steps / 1000,
        share=spent_ns / total_ns,
        measured_in=m.PassName.TRACE,
    )


def _outermost(columns: Columns) -> Mask:
    """Operators that stand in no other one of their thread; a compiled region is an operator in a trace."""
    found = np.zeros(len(columns), np.bool_)
    steps = columns.named(timeline.STEP_PREFIX)
    operators = np.flatnonzero(columns.of_category("cpu_op") & ~steps)
    for thread in np.unique(columns.thread[operators]):
        mine = operators[columns.thread[operators] == thread]
        mine = mine[np.lexsort((-columns.end_ns[mine], columns.start_ns[mine]))]  # an outer one before its first inner
        reached = np.maximum.accumulate(columns.end_ns[mine])
        found[mine[1:]] = columns.start_ns[mine[1:]] >= reached[:-1]
        found[mine[:1]] = True
    return found


def _on_host(columns: Columns, copies: Mask, outermost: Mask) -> tuple[int, int, int]:
    single = np.flatnonzero(columns.of_category("cpu_op") & columns.named(ONE_COPY))
    kernels = int(_inside(columns, copies, single).sum())
    return kernels, int(columns.duration_ns[copies].sum()), int(columns.duration_ns[outermost].sum())


def _on_device(columns: Columns, copies: Mask, work: Launched) -> tuple[int, int, int]:
    known = work.calls != NOBODY
    events, calls = work.events[known], work.calls[known]
    ours = events[_inside(columns, copies, calls)]
    return len(ours), int(columns.duration_ns[ours].sum()), int(columns.duration_ns[work.events].sum())


def _inside(columns: Columns, spans: Mask, which: npt.NDArray[np.intp]) -> Mask:
    """Which of these events begin inside one of the spans (none of which lies in another) on the same thread."""
    found = np.zeros(len(which), np.bool_)
    for thread in np.unique(columns.thread[spans]):
        mine = np.flatnonzero(spans & (columns.thread == thread))
        mine = mine[np.argsort(columns.start_ns[mine])]
        here = columns.thread[which] == thread
        at = np.searchsorted(columns.start_ns[mine], columns.start_ns[which], side="right") - 1
        found |= here & (at >= 0) & (columns.start_ns[which] < columns.end_ns[mine[np.maximum(at, 0)]])
    return found
