"""The CPU's time at a graph break in TRACE: after one graph of a function, until what follows the break is entered."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

import numpy as np

from kgprof import model as m
from kgprof.measures.attribution import GENERATED_CODE_PREFIX, REGION_PREFIX
from kgprof.measures.origins import DIFFERENTIATED
from kgprof.reading import launches, timeline
from kgprof.reading.evidence import RunEvidence
from kgprof.reading.structured_trace import frame_id
from kgprof.reading.timeline import NOBODY

WHAT = "CPU time between the two graphs of the forward pass, under torch.profiler; lost fusion is not counted"


def between_graphs(run: RunEvidence, broken: Mapping[str, Collection[str]]) -> m.FindingCost | m.Skipped:
    """``broken``: the ids of each frame that met the break, and of those that go on behind it. Microseconds a step.

    A frame's region holds that of what goes on behind the break. From the end of the last graph before that, or from
    the frame's start where nothing was captured before the break, without the regions of other functions between them.
    """
    trace = run.trace(m.PassName.TRACE)
    if isinstance(trace, m.Skipped):
        return m.Skipped(reason=f"only TRACE can measure it: {trace.reason}")
    columns = trace.columns
    steps, is_region = timeline.profiler_steps(columns), columns.named(REGION_PREFIX) & columns.of_category("cpu_op")
    differentiated = np.array([name == DIFFERENTIATED for name in columns.names], np.bool_)[columns.name]
    graphs = np.flatnonzero(differentiated | columns.named(GENERATED_CODE_PREFIX))
    if not len(steps) or not len(graphs):
        return m.Skipped(reason="TRACE marks no steps, or the backend does not mark the calls of its graphs in it")
    ends_ns: dict[int, list[int]] = defaultdict(list)  # of the graphs that each region calls itself
    for graph, region in zip(graphs.tolist(), launches.innermost(columns, is_region, graphs).tolist(), strict=True):
        ends_ns[region].append(int(columns.end_ns[graph]))
    regions = np.flatnonzero(is_region)
    inside: dict[int, list[int]] = defaultdict(list)  # the regions that each region enters itself
    open_: list[int] = []
    for region in regions[np.lexsort((-columns.end_ns[regions], columns.start_ns[regions], columns.thread[regions]))]:
        while open_ and (
            columns.thread[open_[-1]] != columns.thread[region] or columns.end_ns[open_[-1]] <= columns.start_ns[region]
        ):
            open_.pop()
        inside[open_[-1] if open_ else NOBODY].append(int(region))
        open_.append(int(region))
    frames = [frame_id(name.removeprefix(REGION_PREFIX)) for name in columns.names]
    of_step = timeline.owners(steps)
    spent_ns = np.zeros(len(steps), np.int64)
    events = 0
    for outer, entered in inside.items():
        after = broken.get(frames[columns.name[outer]], ()) if outer != NOBODY else ()
        for resumed in (region for region in entered if frames[columns.name[region]] in after):
            until_ns = int(columns.start_ns[resumed])
            before = [end for end in ends_ns[outer] if end <= until_ns]
            since_ns = max(before, default=int(columns.start_ns[outer]))
            others = [region for region in entered if since_ns <= columns.start_ns[region] < until_ns]
            step = int(of_step.at(columns.start_ns[[resumed]])[0])
            if step != NOBODY:
                spent_ns[step] += until_ns - since_ns - sum(int(columns.duration_ns[region]) for region in others)
                events += 1
    if not events:
        return m.Skipped(reason="no step of TRACE went through both graphs")
    each_us = spent_ns / 1000
    return m.FindingCost(
        value=float(np.median(each_us) or each_us.mean()),  # the mean, if most steps do not go there
        unit="us/step",
        what=WHAT,
        measured_in=(m.PassName.TRACE,),
        samples=len(steps),
        extremes=(float(each_us.min()), float(each_us.max())),
    )
