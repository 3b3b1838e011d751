"""Each compiled graph beside what eager mode does in its place, and how fast its region moves its bytes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kgprof import model as m
from kgprof.measures import kernels
from kgprof.measures.attribution import REGION_PREFIX
from kgprof.reading.evidence import RunEvidence

NOT_IN_TRACE = m.Skipped(reason="TRACE has no call of this region")
OF_BACKWARD = m.Skipped(reason="traces mark forward regions only")


def fusion(run: RunEvidence) -> m.Fusion | m.Skipped:
    """Skipped where Inductor compiled nothing, or nobody watched it."""
    origins = run.record.kernel_origins
    graphs = origins if isinstance(origins, m.Skipped) else origins.graphs
    if isinstance(graphs, m.Skipped):
        return graphs
    if not graphs:
        return m.Skipped(reason="Inductor compiled no graph")
    eager = run.whole.run(m.RunKey(strategy=run.key.strategy, mode=m.EAGER))
    not_run = m.Skipped(reason=f"{run.key.strategy} was not run in mode eager")
    return m.Fusion(
        graphs=tuple(_graphs(run, graphs)),
        kernels=_kernels_per_step(run),
        eager_kernels=not_run if eager is None else _kernels_per_step(eager),
    )


def _graphs(run: RunEvidence, graphs: tuple[m.GraphWork, ...]) -> Iterator[m.FusedGraph]:
    traced = {} if isinstance(run.trace(m.PassName.TRACE), m.Skipped) else _regions(run)
    ceilings = run.whole.recording.ceilings
    copy: float | m.Skipped = m.Skipped(reason="the copy was not measured")
    if isinstance(ceilings, m.Ceilings):
        rates = [rate for one in ceilings.measured if one.operation == m.COPY for rate in one.per_s]
        copy = (float(np.median(rates)) if rates else 0.0) or copy  # a rate of zero is no ceiling
    else:
        copy = ceilings
    for work in graphs:
        alone = sum(one.compile_id == work.compile_id and not one.backward for one in graphs) == 1
        calls, us = traced.get(work.compile_id, (0, 0.0)) if alone and not work.backward else (0, 0.0)
        why = OF_BACKWARD if work.backward else NOT_IN_TRACE
        rate: float | m.Skipped = why
        if calls and us:
            rate = work.moved_bytes / (us / calls / 1e6)
        yield m.FusedGraph(
            work=work,
            calls=calls or why,
            us=us / calls if calls else why,
            bytes_per_s=rate,
            of_copy=rate / copy
            if not isinstance(rate, m.Skipped) and not isinstance(copy, m.Skipped)
            else m.first_skipped(rate, copy),
        )


def _regions(run: RunEvidence) -> dict[str, tuple[int, float]]:
    """Compile id -> calls, and microseconds of all of them."""
    trace, breakdown = run.trace(m.PassName.TRACE), run.once(kernels.of_trace)
    assert not isinstance(trace, m.Skipped)
    columns = trace.columns
    on_device = isinstance(breakdown, m.KernelBreakdown) and breakdown.device == "cuda"
    device_us = {total.span: total.total_us for total in breakdown.by_region} if on_device else {}  # type: ignore[union-attr]
    found = {}
    for number, name in enumerate(columns.names):
        if name.startswith(REGION_PREFIX):
            calls, region = columns.name == number, name.removeprefix(REGION_PREFIX)
            us = device_us.get(region, 0.0) if on_device else float(columns.duration_ns[calls].sum()) / 1000
            found[region] = int(calls.sum()), us
    return found


def _kernels_per_step(run: RunEvidence) -> float | m.Skipped:
    """On a CPU an operator may call others, and each of them has an event: that would count too many."""
    found = run.once(kernels.of_trace)
    if isinstance(found, m.Skipped):
        return found
    if found.device != "cuda":
        return m.Skipped(reason="a CPU run launches no GPU kernels")
    copies = ("memcpy", "memset")
    return sum(row.count for row in found.rows if row.generator not in copies) / max(1, found.steps)
