"""KGP301 to KGP304: which compiled graphs became CUDA graphs, which did not, and what torch gave as
the reason.

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
from typing import Unpack

import msgspec
import numpy as np

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
    seen_in=((m.Witness.CUDA, m.Witness.CUDA_GRAPH_LOG),),
    can_cost=(m.CostKind.HOST, m.CostKind.COPIES, m.CostKind.LAUNCHES),
    relieves=(m.LimitKind.LAUNCHES,),
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
    seen_in=((m.Witness.CUDA, m.Witness.CUDA_GRAPH_LOG),),
    can_cost=(m.CostKind.HOST, m.CostKind.COPIES, m.CostKind.LAUNCHES),
    relieves=(m.LimitKind.LAUNCHES,),
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
    can_cost=(m.CostKind.HOST, m.CostKind.COPIES, m.CostKind.LAUNCHES),
    relieves=(m.LimitKind.LAUNCHES,),
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
    seen_in=((m.Witness.CUDA, m.Witness.CUDA_GRAPH_LOG, m.Witness.STEADY_CALLS),),
    can_cost=(m.CostKind.HOST, m.CostKind.COPIES, m.CostKind.LAUNCHES),
    relieves=(m.LimitKind.RECORDING, m.LimitKind.RECOMPILING, m.LimitKind.LAUNCHES),
)
RULES = (SKIPPED, PARTITIONED, NONE_LAUNCHED, RERECORDED)

MODES = ("reduce-overhead", "max-autotune")  # of kgprof's own, in which it asks for CUDA graphs
LAUNCH = "cudaGraphLaunch"  # of the CUDA runtime, in a Kineto trace
KERNEL_LAUNCHES = ("cudaLaunchKernel", "cuLaunchKernel")  # and what begins like these
REGION = "Torch-Compiled Region: "  # and the compile id
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
    call: int


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
    return tuple(
        _of_run(run, trace) for run in evidence.runs if (trace := run.compiler) is not None
    )


def _of_run(run: RunEvidence, trace: RunTrace) -> CudaGraphs:
    may_be_one = [graph for graph in trace.all.graphs if graph.cuda_graphs is not False]
    # What Inductor was told at each graph; the mode alone where the graph hook was not there.
    asked = [graph.cuda_graphs for graph in trace.all.graphs if graph.cuda_graphs is not None]
    requested = any(asked or [run.key.mode in MODES])
    if run.whole.device != "cuda":
        return CudaGraphs(
            run=run.key,
            requested=requested,
            graphs=sum(bool(graph.runs) for graph in may_be_one),
            launches_per_step=NOT_ON_CPU,
            recorded=NOT_ON_CPU,
            steady_from=trace.steady_from,
            sizes=graph_sizes(run, trace, {}),
        )
    traced = run.trace(m.PassName.TRACE)
    if run.record.exit.is_early:  # its graphs may have been about to be recorded
        traced = m.Skipped(f"the run {run.record.exit.words}")
    per_step: float | m.Skipped
    if isinstance(traced, m.Skipped):
        per_step = traced
        replayed = []
        ran = [graph for graph in may_be_one if graph.runs]
    else:
        assert isinstance(run.record.trace, m.TracePass)  # a pass without one has no trace
        per_step = int(traced.columns.called(LAUNCH).sum()) / max(1, len(run.record.trace.step_us))
        replayed = list(_replayed(trace, traced.columns))
        names = set(traced.columns.names)
        ran = [graph for graph in may_be_one if REGION + graph.compile_id in names]
    recorded = tuple(_recorded(trace))
    if run.record.script is not None and recorded and not per_step:
        per_step = m.Skipped("a script's CUDA graphs may have been recorded after TRACE")
        replayed = []
    skips, partitions = tuple(_skips(trace)), tuple(_partitions(trace))
    placed = (
        event.location for events in (skips, partitions, replayed, recorded) for event in events
    )
    return CudaGraphs(
        run=run.key,
        requested=requested,
        graphs=len(ran),
        launches_per_step=per_step,
        recorded=recorded,
        skips=skips,
        partitions=partitions,
        steady_from=trace.steady_from,
        replayed=tuple(replayed),
        sizes=graph_sizes(run, trace, {each.compile_id: each.location for each in recorded}),
        identities={place: "\0".join(trace.source.identity(place)) for place in {*placed} if place},
    )


def _replayed(trace: RunTrace, columns: Columns) -> Iterator[Replayed]:
    """Calls of CUDA by the innermost compiled region that they were made in: a resumed function
    runs inside another."""
    regions = columns.named(REGION) & columns.of_category("cpu_op", "user_annotation")
    graph_calls = columns.called(LAUNCH)
    kernel_calls = columns.named(*KERNEL_LAUNCHES)
    calls = np.flatnonzero(
        columns.of_category(*launches.LAUNCH_CATEGORIES) & (graph_calls | kernel_calls)
    )
    inside = launches.innermost(columns, regions, calls)
    recording = launches.innermost(columns, regions, _records(columns))
    replays = regions.copy()
    replays[recording[recording != NOBODY]] = False
    kept = (inside != NOBODY) & replays[inside]
    region = np.where(kept, columns.name[inside], NOBODY)
    for name in dict.fromkeys(graph.compile_id for graph in trace.all.graphs if graph.cuda_graphs):
        if REGION + name in columns.names:
            here = columns.names.index(REGION + name)
            yield Replayed(
                name,
                _place_of_id(trace, name, trace.calls),
                runs=int((replays & (columns.name == here)).sum()),
                launches=int((graph_calls[calls] & (region == here)).sum()),
                kernels=int((kernel_calls[calls] & (region == here)).sum()),
            )


def _records(columns: Columns) -> launches.Indices:
    """Events of a call in which torch records a CUDA graph, or prepares to."""
    begins = columns.named(*RECORDING) & columns.of_category("cpu_op", *launches.LAUNCH_CATEGORIES)
    return np.flatnonzero(begins)


def _skips(trace: RunTrace) -> Iterator[Skip]:
    """torch says it once a function; the same line twice is one skip."""
    seen: set[object] = set()
    for message in trace.all.logs:
        if message.function != _SKIP:
            continue
        place = quoted_line(trace.source, message.text) or _place_of_id(
            trace, message.compile_id, message.call
        )
        reason = message.text.partition("\n")[0].strip().removesuffix("Found from :").strip(" .")
        key = line_of(place, message.compile_id), reason
        if key not in seen:
            seen.add(key)
            yield Skip(message.compile_id, place, reason, message.text, message.call)


def _partitions(trace: RunTrace) -> Iterator[Partitioning]:
    """A line with the counts, then a few lines for each operator that cannot stand in a CUDA
    graph."""
    groups: list[list[m.LogLine]] = []
    for message in trace.all.logs:
        if message.function == _PARTITIONS and _COUNTS.search(message.text):
            groups.append([message])
        elif message.function in (_PARTITIONS, _NODE) and groups:
            groups[-1].append(message)
    for head, *rest in groups:
        counts = _COUNTS.search(head.text)
        texts = [message.text for message in rest]
        assert counts is not None  # the group begins with it
        found = [
            match["reason"] for text in texts if (match := _NODE_REASON.fullmatch(text.strip()))
        ]
        sources: tuple[str, ...] = ()
        if any(map(_ON_CPU.search, found)):
            sources = tuple(_cpu_inputs(trace, head.compile_id))
        related = tuple(
            dict.fromkeys(
                place for name in sources for place in trace.source.bound(last_name(name))
            )
        )
        quoted = quoted_line(trace.source, "\n".join(texts))
        location = define = _place_of_id(trace, head.compile_id, head.call)
        # The line that puts a tensor of the CPU where the graph finds it is the one to change.
        if len(related) == 1 and quoted is None:
            (location,) = related
            if define is not None:
                related = (define,)
        yield Partitioning(
            head.compile_id,
            int(counts[2]),
            int(counts[3]),
            tuple(dict.fromkeys(found)),
            quoted or location,
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


def _recorded(trace: RunTrace) -> Iterator[Recorded]:
    """The reason for a recording that is not the first stands in a message before it, in the same
    call."""
    why = ""
    why_call = -1
    for message in trace.all.logs:
        if (told := _AGAIN.search(message.text)) and message.function not in (_NODE, _RECORD):
            why = told["reason"].strip()
            why_call = message.call
        if message.function == _RECORD:
            number = message.compile_id
            if named := _COMPILE_ID.match(message.text):
                number = named["id"]
            function = ""
            if piece := _FUNCTION.search(message.text):
                function = piece["function"]
            again = ""
            if why_call == message.call:
                again = why
            location = None
            compiled_in = 0
            if compiled := trace.compilation(number, message.call):
                location = place_of(trace, compiled)
                compiled_in = compiled.call
            yield Recorded(
                number, message.call, again, location, function, inputs(message.text), compiled_in
            )


def _place_of_id(trace: RunTrace, name: str, call: int) -> m.Location | None:
    if compiled := trace.compilation(name, call):
        return place_of(trace, compiled)
    return None


# ---------------------------------------------------------------- findings


@of_each
def diagnose(event: CudaGraphs) -> Iterator[m.Finding]:
    if not event.requested:
        return
    for skip in event.skips:
        yield _finding(SKIPPED, event, skip.location, skip.reason, detail=skip.text)
    for cut in event.partitions:
        # Pieces of a graph that torch left out as a whole are never used, whatever the log calls
        # them.
        if cut.not_graphed and NOT_ASKED not in cut.reasons and not _is_skipped(event, cut):
            reasons = ", ".join(cut.reasons) or "torch gave no reason"
            message = (
                f"CUDA graphs cover only {cut.graphed} of "
                f"{plural(cut.graphed + cut.not_graphed, 'partition')} of a compiled graph: "
                f"{reasons}"
            )
            if cut.cpu_inputs:
                message += f"; on the CPU: {', '.join(cut.cpu_inputs[:3])}"
            yield _finding(
                PARTITIONED,
                event,
                cut.location,
                message,
                identity=reasons,
                related=cut.related,
                names=cut.cpu_inputs,
            )
    # Where torch only recorded graphs in the traced steps, there was none to replay yet.
    may_replay = not event.replayed or any(one.runs for one in event.replayed)
    if event.graphs and event.launches_per_step == 0 and may_replay:
        skipped = "torch logged no skip"
        if event.skips:
            skipped = f"torch logged that it skipped {len(event.skips)} of them"
        message = (
            "no CUDA graph was launched in TRACE, although "
            f"{plural(event.graphs, 'compiled graph')} ran in it; {skipped}"
        )
        yield _finding(NONE_LAUNCHED, event, None, message, identity="")
    else:
        yield from _not_launched(event)
    yield from _again(event)
    yield from _for_sizes(event)


def _not_launched(event: CudaGraphs) -> Iterator[m.Finding]:
    for one in event.replayed:
        # Without kernels of its own there was nothing to launch. Fewer launches than runs prove as
        # much of some.
        if one.kernels == 0 or one.launches >= one.runs:
            continue
        name = f"compilation {one.compile_id}"
        if one.location is not None:
            name = one.location.function
        skipped = "torch logged no skip of it"
        if _is_skipped(event, one):
            skipped = "torch logged that it skipped it"
        without = "each"
        if one.launches:
            without = str(one.runs - one.launches)
        message = (
            f"no CUDA graph of {name} was launched in {without} of its {plural(one.runs, 'run')} "
            f"in TRACE, though others were; {skipped}"
        )
        identity = f"{name} {one.compile_id.partition('/')[2]}"
        yield _finding(NONE_LAUNCHED, event, one.location, message, identity=identity)


def _is_skipped(event: CudaGraphs, one: Partitioning | Replayed) -> bool:
    """Whether torch logged a skip of its compilation, or of its function."""
    functions = {
        (skip.location.file, skip.location.function) for skip in event.skips if skip.location
    }
    by_function = (
        one.location is not None and (one.location.file, one.location.function) in functions
    )
    return by_function or any(skip.compile_id == one.compile_id for skip in event.skips)


def _again(event: CudaGraphs) -> Iterator[m.Finding]:
    """Recordings in steady state of a compilation that had been recorded before."""
    if isinstance(event.recorded, m.Skipped):
        return
    sizes = {each.compile_id: each.sizes for each in event.sizes}
    late = (
        [
            one
            for one in _repeated(same, sizes.get(same[0].compile_id, 1))
            if one.call >= event.steady_from
        ]
        for same in grouped(event.recorded, lambda one: (one.compile_id, one.compiled_in))
    )
    for recorded in filter(None, late):
        first = recorded[0]
        name = "a compiled graph"
        if first.location is not None:
            name = first.location.function
        times = "once"
        if len(recorded) > 1:
            times = f"{len(recorded)} times"
        why = next((one.again for one in recorded if one.again), "")
        message = (
            f"the CUDA graph of {name} was recorded again {times} after warm-up: "
            f"{why.partition(chr(10))[0] or 'torch gave no reason'}"
        )
        detail = "\n".join(f"step {one.call}: {one.again}" for one in recorded)
        yield _finding(
            RERECORDED,
            event,
            first.location,
            message,
            detail=detail,
            count=len(recorded),
            identity=name,
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


def _for_sizes(event: CudaGraphs) -> Iterator[m.Finding]:
    """Tell what a CUDA graph for each size of the inputs costs; a note where that is seldom."""
    for each in event.sizes:
        if not each.late:
            continue
        one, several, no_fix = "size", "input sizes", ""
        if each.numbers:
            one, several = "value", f"values of {' and '.join(map(said, each.numbers[:NAMED]))}"
            no_fix = NUMBERS
        message = f"a CUDA graph is recorded for each of {each.sizes:,} {several}"
        often = each.warned
        if isinstance(each.each_us, float):
            often = each.in_steps > SELDOM * each.steps
            took = figure(each.each_us / 1e3)
            usual = figure(each.usual_us / 1e3)
            message += (
                f": {each.in_steps:,} of {plural(each.steps, 'step')} record one or run a {one} "
                f"for the first time, {took} ms each where a replay takes {usual} ms"
            )
        else:
            message += f", {each.late:,} of them after warm-up"
        if each.warned:
            message += "; torch warns of it"
        yield _finding(
            RERECORDED,
            event,
            each.location,
            message,
            identity=SIZES,
            is_note=not often,
            count=each.late,
            no_fix=no_fix,
            cost=_cost_of_sizes(each),
            saves=_saved_without_sizes(each),
        )


@m.skippable
def _cost_of_sizes(each: GraphSizes) -> m.FindingCost:
    m.known(each.each_us)
    return m.FindingCost(
        each.extra_us / 1e6, "s", "beyond replays, in all", (m.PassName.MEMORY,), each.in_steps
    )


@m.skippable
def _saved_without_sizes(each: GraphSizes) -> m.Saving:
    """One graph for all sizes saves the others, and compiling for other sizes."""
    m.known(each.each_us)
    return m.Saving(
        each.extra_us + each.compiled_us,
        "recording graphs, and compiling again for other sizes",
        (m.PassName.MEMORY, m.PassName.COMPILE),
        per="run",
    )


def _finding(
    rule: m.Rule,
    event: CudaGraphs,
    location: m.Location | None,
    message: str,
    *,
    identity: str | None = None,
    is_note: bool = False,
    **details: Unpack[Details],
) -> m.Finding:
    place = ""
    if location is not None:
        place = event.identities[location]
    if identity is None:
        identity = message
    return finding(
        rule,
        Event(run=event.run, location=location),
        message,
        place,
        identity,
        is_note=is_note,
        **details,
    )
