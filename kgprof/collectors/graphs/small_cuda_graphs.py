"""Whether a step replays many CUDA graphs with little in each, so that the launches are back that
graphs save."""

from collections.abc import Iterator

import numpy as np

from kgprof import model as m
from kgprof.collectors.compile import graph_breaks, skipped_frames
from kgprof.collectors.event import Event, finding, on_gpu
from kgprof.collectors.graphs import cuda_graphs
from kgprof.measures.traced_steps import Extent, traced_steps
from kgprof.reading.evidence import RunEvidence
from kgprof.reading.launches import GRAPH_LAUNCH_PREFIXES, LAUNCH_CATEGORIES
from kgprof.wording import figure

MANY = 8  # graphs a step
# of device work in each: a graph's launch costs the CPU about 10 us, and as much between two
SMALL_US = 50.0
IDLE_SHARE = 0.2  # of the step: below it the launches are hidden behind the work

SMALL_GRAPHS = m.Rule(
    id="KGP610",
    name="many-small-cuda-graphs",
    level=m.Level.WARNING,
    summary=(
        "Each step replays many CUDA graphs with little work in each, and the GPU "
        "idles between them."
    ),
    why=(
        "A CUDA graph saves the launches inside it, but its own launch remains. Graph breaks, "
        "partitions and functions compiled one by one split a step into many graphs. The rule: at "
        f"least {MANY} per step, less than {SMALL_US:g} µs of GPU work in each, and the GPU idle "
        f"for at least {100 * IDLE_SHARE:.0f} % of the step."
    ),
    example="mode='reduce-overhead' on each of forty layers instead of on the model.",
    remedy=(
        "Compile the function around them, and remove the graph breaks and partitions between them."
    ),
    topic=m.Topic.CUDA_GRAPHS,
    seen_in=((m.Witness.CUDA, m.Witness.TRACE, m.Witness.LAUNCHES, m.Witness.STEPS),),
    can_cost=(),
    judged_from_times=True,
    symptom_of=tuple(
        rule.id for rule in (*graph_breaks.RULES, *skipped_frames.RULES, *cuda_graphs.RULES)
    ),
    relieves=(m.LimitKind.LAUNCHES,),
)
RULES = (SMALL_GRAPHS,)


class GraphReplays(Event):
    """How one run's traced steps replay their CUDA graphs. Times are microseconds a step."""

    replays: float  # a step
    in_graphs_us: float  # device time of what they launched
    idle_us: float  # the GPU's
    extent: Extent


@on_gpu
def collect(run: RunEvidence) -> Iterator[GraphReplays]:
    """Of the runs on a GPU whose TRACE marks steps and holds launches of CUDA graphs: the rule
    counts them per step."""
    traced = run.once(traced_steps)
    if isinstance(traced, m.Skipped) or not traced.extent.steps:
        return
    columns = traced.columns
    graphs = np.flatnonzero(
        columns.named(*GRAPH_LAUNCH_PREFIXES) & columns.of_category(*LAUNCH_CATEGORIES)
    )
    if len(graphs):
        yield GraphReplays(
            run=run.key,
            replays=len(graphs) / len(traced.steps),
            in_graphs_us=traced.device_us(np.isin(traced.work.calls, graphs)),
            idle_us=traced.without_work_us,
            extent=traced.extent,
        )


def diagnose(events: tuple[GraphReplays, ...]) -> tuple[m.Finding, ...]:
    return tuple(
        _finding(event)
        for event in events
        if event.replays >= MANY
        and event.in_graphs_us < SMALL_US * event.replays
        and event.idle_us >= IDLE_SHARE * event.extent.step_us
    )


def _finding(event: GraphReplays) -> m.Finding:
    extent = event.extent
    each = figure(event.in_graphs_us / event.replays)
    return finding(
        SMALL_GRAPHS,
        event,
        f"{figure(event.replays)} CUDA graphs per step, each with {each} µs of GPU work",
        cost=extent.cost(event.idle_us, "the GPU was idle"),
        saves=extent.saving(event.idle_us, "the step's GPU idle time"),
    )
