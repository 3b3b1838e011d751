"""How declared buffers get their next values, and what the copies cost: kernels a step, and their share of the time.

A copy is ``copy_`` or ``_foreach_copy_`` called from eager code, so outside of every compiled region and of every
other operator. A trace does not say into which tensor, so all such copies of a step are counted, whether they go into
a declared buffer or not.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from kgprof import model as m
from kgprof.collectors import addresses
from kgprof.collectors.addresses import COPIED_INTO, MUTATED, REBOUND, UNWRITTEN, BufferUse
from kgprof.reading import launches
from kgprof.reading.evidence import Evidence, RunEvidence
from kgprof.reading.kineto import Columns
from kgprof.reading.launches import Launched, launched_in_trace
from kgprof.reading.timeline import NOBODY, STEP_PREFIX

COPIES = ("aten::_foreach_copy_", "aten::copy_")
ONE_COPY = "aten::copy_"
NONE_COPIED = m.Skipped(reason="no declared buffer is copied into outside of compiled code")


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
    dtypes: int  # of those; one _foreach_copy_ of tensors of one dtype is one kernel
    mutated: tuple[str, ...]  # inside a compiled region
    rebound: tuple[str, ...]
    unwritten: tuple[str, ...]
    cost: CopyCost | m.Skipped


def buffer_copies(evidence: Evidence) -> tuple[BufferCopies, ...]:
    """In the plan's order; nothing for a run that declares no buffers or whose MEMORY pass watched none."""
    named: dict[m.RunKey, dict[str, list[str]]] = {}
    dtypes: dict[m.RunKey, set[str]] = defaultdict(set)
    for event in evidence.once(addresses.collect):
        if isinstance(event, BufferUse):
            by_pattern = named.setdefault(event.run, {each: [] for each in (COPIED_INTO, MUTATED, REBOUND, UNWRITTEN)})
            by_pattern[event.pattern].append(event.name)
            dtypes[event.run] |= {event.dtype} if event.pattern == COPIED_INTO else set()
    return tuple(
        BufferCopies(
            run=run.key,
            dtypes=len(dtypes[run.key]),
            cost=_cost(run) if named[run.key][COPIED_INTO] else NONE_COPIED,
            **{pattern: tuple(names) for pattern, names in named[run.key].items()},
        )
        for run in evidence.runs
        if run.key in named
    )


def _cost(run: RunEvidence) -> CopyCost | m.Skipped:
    traced, trace, work = run.record.trace, run.trace(m.PassName.TRACE), run.once(launched_in_trace)
    if isinstance(traced, m.Skipped) or isinstance(trace, m.Skipped) or isinstance(work, m.Skipped):
        return m.first_skipped(traced, trace, work)
    return cost(trace.columns, work if run.whole.device == "cuda" else None, steps=len(traced.step_us))


def cost(columns: Columns, work: Launched | None, *, steps: int) -> CopyCost | m.Skipped:
    """What the copies in a trace of ``steps`` steps cost. ``work``: what ran on the GPU; None for a CPU run."""
    outermost = launches.outermost(columns, columns.of_category("cpu_op") & ~columns.named(STEP_PREFIX))
    copies = np.zeros(len(columns), np.bool_)
    copies[outermost] = columns.named(*COPIES)[outermost]
    if not len(outermost) or not steps:
        return m.Skipped(reason="the trace has no operator")
    if work is None:
        single = np.flatnonzero(columns.of_category("cpu_op") & columns.named(ONE_COPY))
        kernels = int((launches.innermost(columns, copies, single) != NOBODY).sum())
        spent_ns, total_ns = (int(columns.duration_ns[which].sum()) for which in (copies, outermost))
    else:
        ours = work.events[launches.innermost(columns, copies, work.calls) != NOBODY]
        kernels = len(ours)
        spent_ns, total_ns = (int(columns.duration_ns[which].sum()) for which in (ours, work.events))
    if not total_ns:
        return m.Skipped(reason="nothing ran on the GPU in the traced steps")
    return CopyCost(
        kernels=kernels / steps,
        duration_us=spent_ns / steps / 1000,
        share=spent_ns / total_ns,
        measured_in=m.PassName.TRACE,
    )
