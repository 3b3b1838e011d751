"""The CPU's time at a graph break in TRACE: after one graph of a function, until what follows the
break is entered."""

from collections.abc import Collection, Mapping

import numpy as np

from kgprof import model as m
from kgprof.measures.collectives import GENERATED_CODE_PREFIX, REGION_PREFIX
from kgprof.measures.origins import DIFFERENTIATED
from kgprof.reading import launches, timeline
from kgprof.reading.evidence import RunEvidence
from kgprof.reading.structured_trace import frame_id
from kgprof.reading.timeline import NOBODY

WHAT = (
    "CPU time between the two graphs of the forward pass, under torch.profiler; "
    "lost fusion is not counted"
)


def between_graphs(
    run: RunEvidence, broken: Mapping[str, Collection[str]]
) -> m.FindingCost | m.Skipped:
    """``broken``: the ids of each frame that met the break, and of those that go on behind it.
    Microseconds a step.

    A frame's region holds that of what goes on behind the break; from the end of the last graph
    before that. Skipped where a step has no graph before the break (none was captured, or the
    backend does not mark it), or another compiled function behind it, which may be what broke it.
    """
    trace = run.trace()
    if isinstance(trace, m.Skipped):
        return m.Skipped(f"only TRACE can measure it: {trace.reason}")
    columns = trace.columns
    steps = timeline.profiler_steps(columns)
    is_region = columns.named(REGION_PREFIX) & columns.of_category("cpu_op")
    differentiated = columns.called(DIFFERENTIATED)
    graphs = np.flatnonzero(differentiated | columns.named(GENERATED_CODE_PREFIX))
    if not len(steps) or not len(graphs):
        return m.Skipped(
            "TRACE marks no steps, or the backend does not mark the calls of its graphs in it"
        )
    called_in = launches.innermost(columns, is_region, graphs)
    regions = np.flatnonzero(is_region)
    parent = np.full(len(columns), NOBODY)
    for thread in launches.threads_of(columns, regions):
        mine = regions[columns.thread[regions] == thread]
        owner = timeline.owners(timeline.intervals_of(columns, mine)).at(columns.start_ns[mine] - 1)
        parent[mine] = np.where(owner == NOBODY, NOBODY, mine[owner])
    frames = [frame_id(name.removeprefix(REGION_PREFIX)) for name in columns.names]
    spent_ns = np.zeros(len(steps), np.int64)
    events = 0
    in_step = timeline.owners(steps).at(columns.start_ns[regions])
    for resumed, step in zip(regions.tolist(), in_step.tolist(), strict=True):
        outer = int(parent[resumed])
        if NOBODY in (outer, step) or frames[columns.name[resumed]] not in broken.get(
            frames[columns.name[outer]], ()
        ):
            continue
        until_ns = columns.start_ns[resumed]
        before = columns.end_ns[graphs[(called_in == outer) & (columns.end_ns[graphs] <= until_ns)]]
        since_ns = before.max(initial=0)
        others = (parent == outer) & (columns.start_ns >= since_ns) & (columns.start_ns < until_ns)
        if not since_ns or others.any():
            return m.Skipped("TRACE does not show the break alone between two graphs")
        spent_ns[step] += until_ns - since_ns
        events += 1
    if not events:
        return m.Skipped("no step of TRACE went through both graphs")
    each_us = spent_ns / 1000
    return m.FindingCost(
        # the mean, if most steps do not go there
        value=float(np.median(each_us) or each_us.mean()),
        unit="us/step",
        what=WHAT,
        measured_in=(m.PassName.TRACE,),
        samples=len(steps),
        extremes=(float(each_us.min()), float(each_us.max())),
    )
