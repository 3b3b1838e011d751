"""KGP301 to KGP304: which compiled graphs became CUDA graphs, which did not, and what torch gave as
the reason.

    torch's log ──► skips, partitions, recorded ─┐
    TRACE, by compiled region ──► replayed      ├─► CudaGraphs ──diagnose──► findings
    MEMORY ──► sizes                            ─┘   one per run

Only a ``cudaGraphLaunch`` in the trace proves that a CUDA graph ran; a log that says nothing proves
nothing, and a "cudagraphable" partition may never be used. Launches are counted for the whole step
and within each compiled region, so that a graph that torch left out in silence is seen among others
that run. Messages are told apart by the function of torch's that logged them (the same in 2.11 and
2.13), their text is kept as it stands.

On a CPU run none of this can be observed.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Unpack

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace as replaced

from kgprof import model as m
from kgprof.collectors.compile.compilations_by_function import place_of
from kgprof.collectors.event import Details, Event, finding, of_each
from kgprof.collectors.fingerprint import grouped, line_of
from kgprof.collectors.graphs.graph_sizes import GraphSizes, graph_sizes, inputs
from kgprof.collectors.tensors.aliases import quoted_line
from kgprof.collectors.tensors.tensor_facts import last_name, said
from kgprof.reading import launches
from kgprof.reading.evidence import Evidence, RunEvidence
from kgprof.reading.kineto import Columns
from kgprof.reading.structured_trace import RunTrace, compile_id
from kgprof.reading.timeline import NOBODY
from kgprof.wording import figure, plural

# what the four rules share
LAUNCHED_ONE_BY_ONE = (m.CostKind.HOST, m.CostKind.COPIES, m.CostKind.LAUNCHES)
LAUNCHES = (m.LimitKind.LAUNCHES,)
LOGGED = (m.Witness.CUDA, m.Witness.CUDA_GRAPH_LOG)

SKIPPED = m.Rule(
    id="KGP301",
    name="cudagraph-skipped",
    level=m.Level.WARNING,
    summary="CUDA graphs were requested, but torch did not capture one for this compiled graph.",
    why=(
        "Without a CUDA graph the CPU launches each kernel on its own. If kernels are short, the "
        "CPU cannot keep up and the GPU waits, which mode='reduce-overhead' should have prevented. "
        "The usual reason is an input that the graph writes to and torch does not own; another is "
        "control flow on the CPU."
    ),
    example=(
        "x.mul_(2) on an argument of a function compiled with "
        "mode='reduce-overhead'; torch.cond in it."
    ),
    remedy=(
        "Return a new tensor instead of writing to an argument, or make the tensor a buffer of the "
        "module, which has a fixed address. Keep operators that run on the CPU (torch.cond, copies "
        "to the CPU) out of the function."
    ),
    topic=m.Topic.CUDA_GRAPHS,
    seen_in=(LOGGED,),
    can_cost=LAUNCHED_ONE_BY_ONE,
    relieves=LAUNCHES,
)
PARTITIONED = m.Rule(
    id="KGP302",
    name="cudagraph-partitioned",
    level=m.Level.WARNING,
    summary=(
        "CUDA graphs cover only part of a compiled graph, because some of its "
        "operators cannot be captured."
    ),
    why=(
        "Each partition is a CUDA graph with its own launch, and the CPU launches what lies "
        "between them. A copy from or to the CPU also waits for the GPU. torch logs this at DEBUG "
        "only."
    ),
    example=(
        "y = x * scale where scale is a tensor on the CPU; table[i].to('cuda') "
        "inside the compiled function."
    ),
    remedy=(
        "Move the tensor to the GPU before the step, or the operator out of the compiled function."
    ),
    topic=m.Topic.CUDA_GRAPHS,
    seen_in=(LOGGED,),
    can_cost=LAUNCHED_ONE_BY_ONE,
    relieves=LAUNCHES,
)
NONE_LAUNCHED = m.Rule(
    id="KGP303",
    name="cudagraph-expected-none-launched",
    level=m.Level.WARNING,
    summary="CUDA graphs were requested, but none was replayed for a compiled graph after warm-up.",
    why=(
        "A cudaGraphLaunch is the only proof that a CUDA graph is replayed. torch can skip a graph "
        "without a message and without counting it (counters['inductor']['cudagraph_skips'] stays "
        "0). A graph without launches gains nothing from CUDA graphs, whatever the log says."
    ),
    example="mode='reduce-overhead' when every partition of the graph contains a CPU operator.",
    remedy=(
        "Check the skips and partitions that this report lists with this finding. If there are "
        "none, run with TORCH_LOGS=cudagraphs and torch._inductor.config.triton.cudagraph_or_error "
        "= True."
    ),
    topic=m.Topic.CUDA_GRAPHS,
    seen_in=((m.Witness.CUDA, m.Witness.COMPILE, m.Witness.LAUNCHES, m.Witness.END),),
    can_cost=LAUNCHED_ONE_BY_ONE,
    relieves=LAUNCHES,
)
RERECORDED = m.Rule(
    id="KGP304",
    name="cudagraph-rerecorded",
    level=m.Level.WARNING,
    summary="A CUDA graph was recorded again after the warm-up calls.",
    why=(
        "A CUDA graph contains the addresses and sizes it was recorded with. If a tensor that "
        "torch takes to be fixed has moved, or a new size arrives, torch records the graph again: "
        "it waits for all GPU work, and the step takes many times as long. Before a graph is "
        "recorded for a size, one step runs without any. After 128 recordings torch may stop using "
        "CUDA graphs for this function."
    ),
    example=(
        "model.weight.data = new_weights between two steps; a batch of another size "
        "under dynamic shapes."
    ),
    remedy=(
        "Write into the same tensors (weight.copy_(new)), and pad batches to a few "
        "sizes that occur during warm-up."
    ),
    topic=m.Topic.CUDA_GRAPHS,
    seen_in=((*LOGGED, m.Witness.STEADY_CALLS),),
    can_cost=LAUNCHED_ONE_BY_ONE,
    relieves=(m.LimitKind.RECORDING, m.LimitKind.RECOMPILING, *LAUNCHES),
)
RULES = (SKIPPED, PARTITIONED, NONE_LAUNCHED, RERECORDED)

MODES = ("reduce-overhead", "max-autotune")  # of kgprof's own, in which it asks for CUDA graphs
LAUNCH = "cudaGraphLaunch"  # of the CUDA runtime, in a Kineto trace
KERNEL_LAUNCHES = ("cudaLaunchKernel", "cuLaunchKernel")  # and what begins like these
REGION = "Torch-Compiled Region: "  # and the compile id
GENERATED = "## Call CompiledFxGraph"  # and its key, around a call of what Inductor generated
Mask = npt.NDArray[np.bool_]
# What a trace has of a recording, and of the first run of a size; the last is CUDA's own call.
RECORDING = ("cudagraphify.get_container", "CUDAGraphNode.record", "cudaStreamBeginCapture")
NAMED = 2  # numbers, in a message
# torch's reason for all operators of a graph that nobody asked to be a CUDA graph
NOT_ASKED = "partition includes all ops when cudagraphs is disabled"
SELDOM = 1 / 8  # of the steps: fewer that record a graph for a new size are a note
SIZES = "for each size"
NUMBERS = (
    "a CUDA graph holds the numbers that it was recorded with: keep them the same, or pass them as "
    "tensors on the GPU where no size and no branch follows from them"
)
# what a graph for each size costs, and what compiling for it does
MEASURED = (m.PassName.MEMORY, m.PassName.COMPILE)
NOT_ON_CPU = m.Skipped("not observable on CPU")

# Functions of torch._inductor that log, and what their messages are about.
_SKIP = "log_cudagraph_skip_and_bump_counter"
_PARTITIONS = "_log_graph_partitions"
_NODE = "_log_non_cudagraphable_node"
_RECORD = "record_function"
# in the reason for an operator that cannot stand in a CUDA graph
_ON_CPU = re.compile(r"(?i)cpu|DeviceCopy")
_COUNTS = re.compile(
    r"Created (\d+) graph partitions: (\d+) cudagraphable, (\d+) non-cudagraphable"
)
_NODE_REASON = re.compile(r"\S+: reason=(?P<reason>.*?)(?:, ir=.*)?")
_COMPILE_ID = re.compile(r"\[(?P<id>[^\]\s]+)\] ")
_FUNCTION = re.compile(r"function=(?P<function>[^,=]+),")
_AGAIN = re.compile(r" reason=(?P<reason>.+)", re.S)


class Skip(m.Model, kw_only=False):
    compile_id: str  # empty for a skip that torch decides on when the graph runs
    location: m.Location | None  # the project's line that torch names, else the def
    reason: str  # torch's first line
    text: str


class Partitioning(m.Model, kw_only=False):
    """How one compilation was cut into pieces; all of them may be fit for CUDA graphs."""

    compile_id: str
    graphed: int
    not_graphed: int
    reasons: tuple[str, ...]  # torch's words for each operator that cannot stand in one
    location: m.Location | None
    # tensors on the CPU that the graph takes, as the program names them
    cpu_inputs: tuple[str, ...] = ()
    related: tuple[m.Location, ...] = ()  # the def, or the lines that bind those tensors


class Recorded(m.Model, kw_only=False):
    """One recording of one CUDA graph."""

    compile_id: str
    call: int
    again: str  # why it was recorded again, in torch's words; empty for a first one
    location: m.Location | None
    function: str = ""  # one a piece of the graph: "partition_0"
    inputs: tuple[tuple[int, ...], ...] = ()  # their sizes
    # the call in which it was compiled: a reset gives out the same ids again
    compiled_in: int = 0


class Replayed(m.Model, kw_only=False):
    """One compiled graph that was asked to be a CUDA graph, over all steps of TRACE."""

    compile_id: str
    location: m.Location | None
    # Of its compiled region, but for those in which torch recorded a graph or ran a size of the
    # inputs for the first time, which launch none by themselves.
    runs: int
    launches: int  # of CUDA graphs in it; one a run and piece where all went well
    kernels: int  # launched in it one by one


class CudaGraphs(Event):
    """One run."""

    requested: bool
    # that ran, in TRACE where there is one, but for those not asked to be CUDA graphs
    graphs: int
    launches_per_step: float | m.Skipped  # of CUDA graphs, in TRACE
    recorded: tuple[Recorded, ...] | m.Skipped
    skips: tuple[Skip, ...] = ()
    partitions: tuple[Partitioning, ...] = ()
    steady_from: int
    replayed: tuple[Replayed, ...] = ()
    sizes: tuple[GraphSizes, ...] = ()  # compilations that have a graph for each of several sizes
    # of each place, in any checkout
    identities: dict[m.Location, str] = msgspec.field(default_factory=dict)


# ---------------------------------------------------------------- events


def collect(evidence: Evidence) -> tuple[CudaGraphs, ...]:
    return tuple(event for run in evidence.runs for event in _of_run(run))


def _of_run(run: RunEvidence) -> Iterator[CudaGraphs]:
    """One event, or none of a run whose COMPILE pass did not come to its end."""
    trace = run.compiler
    if trace is None:
        return
    # What Inductor was told at each graph; the mode alone where the graph hook was not there.
    asked = [graph.cuda_graphs for graph in trace.all.graphs if graph.cuda_graphs is not None]
    event = CudaGraphs(
        run=run.key,
        requested=any(asked or [run.key.mode in MODES]),
        graphs=sum(bool(graph.runs) for graph in _may_be_one(trace)),
        launches_per_step=NOT_ON_CPU,
        recorded=NOT_ON_CPU,
        steady_from=trace.steady_from,
    )
    if run.whole.device != "cuda":
        yield replaced(event, sizes=graph_sizes(run, trace, {}))
        return
    recorded = tuple(_recordings(trace))
    places = {each.compile_id: each.location for each in recorded}
    event = replaced(
        _in_trace(event, run, trace),
        recorded=recorded,
        skips=tuple(_skips(trace)),
        partitions=tuple(_partitions(trace)),
        sizes=graph_sizes(run, trace, places),
    )
    if run.record.script is not None and recorded and event.launches_per_step == 0:
        later = m.Skipped("a script's CUDA graphs may have been recorded after TRACE")
        event = replaced(event, launches_per_step=later, replayed=())
    placed: list[Any] = [*event.skips, *event.partitions, *event.replayed, *recorded]
    for each in placed:
        place = each.location
        if place is not None:
            event.identities[place] = "\0".join(trace.source.identity(place))
    yield event


def _may_be_one(trace: RunTrace) -> list[m.GraphRuns]:
    return [graph for graph in trace.all.graphs if graph.cuda_graphs is not False]


def _in_trace(event: CudaGraphs, run: RunEvidence, trace: RunTrace) -> CudaGraphs:
    """The event with what TRACE shows, or with why it shows nothing."""
    traced = run.trace(m.PassName.TRACE)
    if run.record.exit.is_early:  # its graphs may have been about to be recorded
        traced = m.Skipped(f"the run {run.record.exit.words}")
    if isinstance(traced, m.Skipped):
        return replaced(event, launches_per_step=traced)
    assert isinstance(run.record.trace, m.TracePass)  # a pass without one has no trace
    columns = traced.columns
    launched = int(columns.called(LAUNCH).sum())
    return replaced(
        event,
        graphs=sum(REGION + graph.compile_id in columns.names for graph in _may_be_one(trace)),
        launches_per_step=launched / max(1, len(run.record.trace.step_us)),
        replayed=tuple(_replayed(trace, columns)),
    )


def _replayed(trace: RunTrace, columns: Columns) -> Iterator[Replayed]:
    """Calls of CUDA by the innermost compiled region that they were made in: a resumed function
    runs inside another."""
    regions = columns.named(REGION) & columns.of_category("cpu_op", "user_annotation")
    by_the_cpu = columns.of_category(*launches.LAUNCH_CATEGORIES)
    graph_calls = columns.called(LAUNCH)
    kernel_calls = columns.named(*KERNEL_LAUNCHES)
    calls = np.flatnonzero(by_the_cpu & (graph_calls | kernel_calls))
    # Events of a call in which torch records a CUDA graph, or prepares to.
    begins = columns.named(*RECORDING) & (columns.of_category("cpu_op") | by_the_cpu)
    recording = launches.innermost(columns, regions, np.flatnonzero(begins))
    replays = _with_generated_code(columns, regions)
    replays[recording[recording != NOBODY]] = False
    inside = launches.innermost(columns, regions, calls)
    counted = (inside != NOBODY) & replays[inside]
    calls = calls[counted]
    region = columns.name[inside[counted]]
    for name in dict.fromkeys(graph.compile_id for graph in trace.all.graphs if graph.cuda_graphs):
        if REGION + name not in columns.names:
            continue
        number = columns.names.index(REGION + name)
        made = calls[region == number]
        yield Replayed(
            name,
            _definition(trace, name, trace.calls),
            runs=int((replays & (columns.name == number)).sum()),
            launches=int(graph_calls[made].sum()),
            kernels=int(kernel_calls[made].sum()),
        )


def _with_generated_code(columns: Columns, regions: Mask) -> Mask:
    """Return the regions that call what Inductor generated: torch opens one too where only eager
    operators run in it. All of them where the trace names no such call."""
    called = columns.named(GENERATED)
    if not called.any():
        return regions.copy()
    around = launches.innermost(columns, regions, np.flatnonzero(called))
    having = np.zeros_like(regions)
    having[around[around != NOBODY]] = True
    return having


# ---------------------------------------------------------------- what torch logs


def _definition(trace: RunTrace, name: str, call: int) -> m.Location | None:
    """The place of the compilation with this id that a message of this call belongs to."""
    compiled = trace.compilation(name, call)
    if compiled is None:
        return None
    return place_of(trace, compiled)


def _skips(trace: RunTrace) -> Iterator[Skip]:
    """torch says it once a function; the same line twice is one skip."""
    seen: set[object] = set()
    for message in trace.all.logs:
        if message.function != _SKIP:
            continue
        name = message.compile_id
        text = message.text
        place = quoted_line(trace.source, text) or _definition(trace, name, message.call)
        reason = text.partition("\n")[0].strip().removesuffix("Found from :").strip(" .")
        key = (line_of(place, name), reason)
        if key not in seen:
            seen.add(key)
            yield Skip(name, place, reason, text)


def _partitions(trace: RunTrace) -> Iterator[Partitioning]:
    """A line with the counts, then a few lines for each operator that cannot stand in a CUDA
    graph."""
    groups: list[tuple[m.LogLine, list[str]]] = []
    for message in trace.all.logs:
        if message.function == _PARTITIONS and _COUNTS.search(message.text):
            groups.append((message, []))
        elif message.function in (_PARTITIONS, _NODE) and groups:
            groups[-1][1].append(message.text)
    for head, texts in groups:
        yield _partitioning(trace, head, texts)


def _partitioning(trace: RunTrace, head: m.LogLine, texts: list[str]) -> Partitioning:
    """``texts``: of the messages that follow ``head``."""
    counts = _COUNTS.search(head.text)
    assert counts is not None  # the group begins with it
    operators = filter(None, (_NODE_REASON.fullmatch(text.strip()) for text in texts))
    reasons = tuple(dict.fromkeys(operator["reason"] for operator in operators))
    sources: list[str] = []
    if any(map(_ON_CPU.search, reasons)):
        sources += _cpu_inputs(trace, head.compile_id)
    bound: dict[m.Location, None] = {}
    for name in sources:
        bound |= dict.fromkeys(trace.source.bound(last_name(name)))
    related = tuple(bound)
    place = quoted_line(trace.source, "\n".join(texts))
    if place is None:
        place = _definition(trace, head.compile_id, head.call)
        # The line that puts a tensor of the CPU where the graph finds it is the one to change.
        if len(related) == 1:
            (binding,) = related
            if place is not None:
                related = (place,)
            place = binding
    return Partitioning(
        head.compile_id,
        int(counts[2]),
        int(counts[3]),
        reasons,
        place,
        tuple(map(said, sources)),
        related,
    )


def _cpu_inputs(trace: RunTrace, name: str) -> Iterator[str]:
    """Dynamo's sources of the tensors on the CPU that it met in a compilation."""
    on_cpu: set[tuple[object, object]] = set()
    for record in trace.all.records:
        metadata = record.metadata
        if compile_id(metadata) != name:
            continue
        tensor = metadata.get("describe_tensor")
        source = metadata.get("describe_source")
        if isinstance(tensor, dict) and "cpu" in str(tensor.get("device")):
            on_cpu.add((tensor.get("describer_id"), tensor.get("id")))
        if isinstance(source, dict) and (source.get("describer_id"), source.get("id")) in on_cpu:
            yield str(source.get("source"))


def _recordings(trace: RunTrace) -> Iterator[Recorded]:
    """The reason for a recording that is not the first stands in a message before it, in the same
    call."""
    why = ""
    why_call = -1
    for message in trace.all.logs:
        call = message.call
        text = message.text
        if message.function != _RECORD:
            if message.function != _NODE and (reason := _AGAIN.search(text)):
                why = reason["reason"].strip()
                why_call = call
            continue
        again = ""
        if why_call == call:
            again = why
        number = message.compile_id
        if named := _COMPILE_ID.match(text):
            number = named["id"]
        function = ""
        if piece := _FUNCTION.search(text):
            function = piece["function"]
        location = None
        compiled_in = 0
        if compiled := trace.compilation(number, call):
            location = place_of(trace, compiled)
            compiled_in = compiled.call
        yield Recorded(number, call, again, location, function, inputs(text), compiled_in)


# ---------------------------------------------------------------- findings


@of_each
def diagnose(event: CudaGraphs) -> Iterator[m.Finding]:
    if not event.requested:
        return
    for skip in event.skips:
        yield _finding(SKIPPED, event, skip.location, skip.reason, skip.reason, detail=skip.text)
    for cut in event.partitions:
        # Pieces of a graph that torch left out as a whole are never used, whatever the log calls
        # them.
        if cut.not_graphed and NOT_ASKED not in cut.reasons and not _is_skipped(event, cut):
            yield _partitioned(event, cut)
    # Where torch only recorded graphs in the traced steps, there was none to replay yet.
    may_replay = not event.replayed or any(graph.runs for graph in event.replayed)
    if event.graphs and event.launches_per_step == 0 and may_replay:
        yield _none_launched(event)
    else:
        yield from _not_launched(event)
    yield from _recorded_again(event)
    for sizes in event.sizes:
        if sizes.late:
            yield _recorded_for_sizes(event, sizes)


def _partitioned(event: CudaGraphs, cut: Partitioning) -> m.Finding:
    reasons = ", ".join(cut.reasons) or "torch gave no reason"
    pieces = plural(cut.graphed + cut.not_graphed, "partition")
    message = f"CUDA graphs cover only {cut.graphed} of {pieces} of a compiled graph: {reasons}"
    names = cut.cpu_inputs
    if names:
        message += f"; on the CPU: {', '.join(names[:3])}"
    return _finding(
        PARTITIONED, event, cut.location, reasons, message, related=cut.related, names=names
    )


def _none_launched(event: CudaGraphs) -> m.Finding:
    skipped = "torch logged no skip"
    if event.skips:
        skipped = f"torch logged that it skipped {len(event.skips)} of them"
    message = (
        "no CUDA graph was launched in TRACE, although "
        f"{plural(event.graphs, 'compiled graph')} ran in it; {skipped}"
    )
    return _finding(NONE_LAUNCHED, event, None, "", message)


def _not_launched(event: CudaGraphs) -> Iterator[m.Finding]:
    for graph in event.replayed:
        # Without kernels of its own there was nothing to launch. Fewer launches than runs prove as
        # much of some.
        if graph.kernels == 0 or graph.launches >= graph.runs:
            continue
        name = f"compilation {graph.compile_id}"
        if graph.location is not None:
            name = graph.location.function
        skipped = "torch logged no skip of it"
        if _is_skipped(event, graph):
            skipped = "torch logged that it skipped it"
        without = "each"
        if graph.launches:
            without = str(graph.runs - graph.launches)
        message = (
            f"no CUDA graph of {name} was launched in {without} of its {plural(graph.runs, 'run')} "
            f"in TRACE, though others were; {skipped}"
        )
        identity = f"{name} {graph.compile_id.partition('/')[2]}"
        yield _finding(NONE_LAUNCHED, event, graph.location, identity, message)


def _is_skipped(event: CudaGraphs, graph: Partitioning | Replayed) -> bool:
    """Whether torch logged a skip of its compilation, or of its function."""
    place = graph.location
    for skip in event.skips:
        if skip.compile_id == graph.compile_id:
            return True
        other = skip.location
        if place and other and (place.file, place.function) == (other.file, other.function):
            return True
    return False


def _recorded_again(event: CudaGraphs) -> Iterator[m.Finding]:
    """Recordings in steady state of a compilation that had been recorded before."""
    if isinstance(event.recorded, m.Skipped):
        return
    sizes = {each.compile_id: each.sizes for each in event.sizes}
    for graph in grouped(event.recorded, lambda one: (one.compile_id, one.compiled_in)):
        repeated = _repeated(graph, sizes.get(graph[0].compile_id, 1))
        late = [recorded for recorded in repeated if recorded.call >= event.steady_from]
        if not late:
            continue
        name = "a compiled graph"
        place = graph[0].location
        if place is not None:
            name = place.function
        times = "once"
        if len(late) > 1:
            times = f"{len(late)} times"
        why = next((recorded.again for recorded in late if recorded.again), "")
        message = (
            f"the CUDA graph of {name} was recorded again {times} after warm-up: "
            f"{why.partition(chr(10))[0] or 'torch gave no reason'}"
        )
        detail = "\n".join(f"step {recorded.call}: {recorded.again}" for recorded in late)
        yield _finding(
            RERECORDED,
            event,
            place,
            name,
            message,
            detail=detail,
            count=len(late),
        )


def _repeated(recorded: Sequence[Recorded], sizes: int) -> Iterator[Recorded]:
    """Give the recordings that torch explains, or that are of sizes that were recorded before.

    ``sizes``: for which torch made a graph. Its log has no numbers, and not every tensor: of those
    that it does not tell apart, so many look like others and are first ones.
    """
    kinds = {(one.function, one.inputs) for one in recorded}
    first_ones = Counter({one.function: sizes for one in recorded})
    first_ones.subtract(function for function, _ in kinds)
    known = set[tuple[object, ...]]()
    for number, one in enumerate(recorded):
        key = (one.function, one.inputs)
        is_repeated = key in known
        if is_repeated and not one.again and first_ones[one.function] > 0:
            first_ones[one.function] -= 1
            is_repeated = False
        if number and (one.again or is_repeated):
            yield one
        known.add(key)


def _recorded_for_sizes(event: CudaGraphs, sizes: GraphSizes) -> m.Finding:
    """Tell what a CUDA graph for each size of the inputs costs; a note where that is seldom."""
    one = "size"
    several = "input sizes"
    no_fix = ""
    if sizes.numbers:
        one = "value"
        several = f"values of {' and '.join(map(said, sizes.numbers[:NAMED]))}"
        no_fix = NUMBERS
    message = f"a CUDA graph is recorded for each of {sizes.sizes:,} {several}"
    often = sizes.warned
    details: Details = {"count": sizes.late, "no_fix": no_fix}
    if isinstance(sizes.each_us, m.Skipped):
        message += f", {sizes.late:,} of them after warm-up"
        details["cost"] = details["saves"] = sizes.each_us
    else:
        often = sizes.in_steps > SELDOM * sizes.steps
        took = figure(sizes.each_us / 1e3)
        usual = figure(sizes.usual_us / 1e3)
        message += (
            f": {sizes.in_steps:,} of {plural(sizes.steps, 'step')} record one or run a {one} "
            f"for the first time, {took} ms each where a replay takes {usual} ms"
        )
        beyond_s = sizes.extra_us / 1e6
        details["cost"] = m.FindingCost(
            beyond_s, "s", "beyond replays, in all", MEASURED[:1], sizes.in_steps
        )
        # One graph for all sizes saves the others, and compiling for other sizes.
        saved_us = sizes.extra_us + sizes.compiled_us
        what = "recording graphs, and compiling again for other sizes"
        details["saves"] = m.Saving(saved_us, what, MEASURED, per="run")
    if sizes.warned:
        message += "; torch warns of it"
    place = sizes.location
    return _finding(RERECORDED, event, place, SIZES, message, is_note=not often, **details)


def _finding(
    rule: m.Rule,
    event: CudaGraphs,
    location: m.Location | None,
    identity: str,
    message: str,
    *,
    is_note: bool = False,
    **details: Unpack[Details],
) -> m.Finding:
    place = ""
    if location is not None:
        place = event.identities[location]
    here = Event(run=event.run, location=location)
    return finding(rule, here, message, place, identity, is_note=is_note, **details)
