"""KGP402, 403, 405 and 406: tensors around a compiled function that share memory, and what that
does to it.

Sharing is exact: two ranges of one storage that interleave without a common element share nothing.
What ran is the truth; what AOTAutograd had decided beforehand stands beside it in the detail, and
misses inputs that come back as they are. KGP406 is an exception of torch's, told by the id of its
explanation (GB0040, GB0041).

Not seen: a view of an argument that is made before a graph break and only handed back behind it.
"""

import re
from collections.abc import Iterator

import msgspec

from kgprof import model as m
from kgprof.collectors.event import Event, finding, of_each
from kgprof.collectors.fingerprint import grouped, line_of
from kgprof.collectors.tensors.tensor_facts import (
    RunTensors,
    at,
    is_written,
    overlaps_itself,
    relation,
    returns,
    run_tensors,
    said,
)
from kgprof.reading.evidence import Evidence
from kgprof.reading.source_text import SourceText, user_function
from kgprof.wording import plural

OUTPUT_INPUT = m.Rule(
    id="KGP402",
    name="output-aliases-input",
    level=m.Level.WARNING,
    summary="A compiled function returns memory that it shares with its arguments.",
    why=(
        "Writing to the result also changes the argument, and the other way round. A buffer "
        "returned without a copy is overwritten by the next step while the caller still holds it. "
        "torch must also rebuild such an output outside the graph in every call. It is a note if "
        "nothing writes to the tensor and no CUDA graphs are used."
    ),
    example=(
        "def step(x): return x.view(-1); or def step(self, x): self.state.add_(x); "
        "return self.state."
    ),
    remedy=(
        "If the caller writes to one of the two, or keeps the result beyond the next call: return "
        "a copy (x.clone()), or let the caller make the view and return only new tensors."
    ),
    topic=m.Topic.TENSORS,
    seen_in=((m.Witness.TENSORS,),),
    can_cost=(),
)
OUTPUTS = m.Rule(
    id="KGP403",
    name="outputs-alias-each-other",
    level=m.Level.WARNING,
    summary=(
        "Two results of a compiled function, or of two replays of its CUDA graph, share memory."
    ),
    why=(
        "Writing to one result changes the other. A CUDA graph writes to the same memory at every "
        "replay: it overwrites a result that was kept from an earlier step, or torch refuses to "
        "read that result."
    ),
    example=(
        "def step(x): y = x + 1; return y, y.t(); or history.append(step(x)) with "
        "mode='reduce-overhead'."
    ),
    remedy=(
        "Return one of the two and derive the other outside, or clone it. Clone what you keep "
        "beyond the next step, and call torch.compiler.cudagraph_mark_step_begin() at the start of "
        "each step."
    ),
    topic=m.Topic.TENSORS,
    seen_in=((m.Witness.TENSORS,),),
    can_cost=(),
)
OVERLAPPING = m.Rule(
    id="KGP405",
    name="overlapping-memory",
    level=m.Level.WARNING,
    summary=(
        "A compiled function writes to an input that shares memory with another one, "
        "or with itself."
    ),
    why=(
        "torch then rebuilds both inputs from one base tensor and guards on how they overlap, so a "
        "change of the overlap recompiles. The result of writing to an expanded tensor also "
        "depends on the order in which its elements are written."
    ),
    example=(
        "step(buffer[:6], buffer[2:]) where step writes to the first; x.expand(4, 3) "
        "passed to x.add_(y)."
    ),
    remedy="Pass tensors that do not overlap, or a contiguous copy: x.expand(4, 3).contiguous().",
    topic=m.Topic.TENSORS,
    seen_in=((m.Witness.TENSORS,),),
    can_cost=(),
)
COND = m.Rule(
    id="KGP406",
    name="cond-branch-aliases",
    level=m.Level.ERROR,
    summary=(
        "A branch of torch.cond returns an operand or a view of it, one tensor "
        "twice, or writes to an operand."
    ),
    why=(
        "torch.cond refuses this, in eager mode too, and no fallback catches the error; under "
        "torch.no_grad() torch 2.13 accepts a write. A branch must return new memory, because the "
        "caller cannot know which branch ran."
    ),
    example="torch.cond(pred, lambda x: x, lambda x: x.sin(), (x,)).",
    remedy=(
        "Return x.clone() instead of x or a view of it, and compute new values "
        "instead of writing to operands."
    ),
    topic=m.Topic.TENSORS,
    seen_in=((m.Witness.FRAME_HOOK,),),
    can_cost=(),
)
RULES = (OUTPUT_INPUT, OUTPUTS, OVERLAPPING, COND)

IDENTITY, VIEW, UNKNOWN, REPLAY = "identity", "view", "unknown", "replay"
INPUTS, INTERNAL, ALIASING, MUTATION = "inputs", "internal", "aliasing", "mutation"
_KINDS = {"the same tensor": IDENTITY, "unknown": UNKNOWN}

# torch's own ids of what it refuses in a branch, in its registry of graph breaks.
_REFUSED = {"gb0040": ALIASING, "gb0041": MUTATION}
_ID = re.compile(r"/gb/(gb\d+)\.html")
_OPERATOR = re.compile(r"Higher Order Operator: (\S+)")
_FILE_LINE = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>\S+))?')
_USER_CODE = "from user code:"


class Alias(Event):
    """Memory that is shared at one place. ``kind``: identity and view (402, 403), replay (403),
    inputs and internal (405), aliasing and mutation (406)."""

    rule: str
    kind: str
    function: str
    pairs: tuple[str, ...]  # what shares memory with what
    serious: bool
    related: tuple[m.Location, ...] = ()
    detail: str = ""


def collect(evidence: Evidence) -> tuple[Alias, ...]:
    on_cuda = evidence.device == "cuda"
    shared = (
        event
        for tensors in evidence.once(run_tensors)
        for event in _of_run(tensors, on_cuda=on_cuda)
    )
    return (*shared, *_refused(evidence))


# ---------------------------------------------------------------- around compiled graphs


def _of_run(tensors: RunTensors, *, on_cuda: bool) -> Iterator[Alias]:
    """One event a function and rule, whatever the number of its compilations."""
    found = [
        event
        for graph in tensors.graphs
        for event in (
            *_outputs(tensors, graph),
            *_held(tensors, graph, on_cuda=on_cuda),
            *_inputs(tensors, graph),
        )
    ]
    order = (REPLAY, VIEW, IDENTITY, INPUTS, INTERNAL, UNKNOWN)
    for events in grouped(
        found, lambda event: (event.rule, line_of(event.location), event.function)
    ):
        yield msgspec.structs.replace(
            events[0],
            kind=min((event.kind for event in events), key=order.index),
            pairs=tuple(dict.fromkeys(pair for event in events for pair in event.pairs)),
            serious=any(event.serious for event in events),
            detail="\n".join(dict.fromkeys(event.detail for event in events if event.detail)),
        )


def _outputs(tensors: RunTensors, graph: m.WatchedGraph) -> Iterator[Alias]:
    """Only of a graph that ends its function: what another one gives out is no result of the
    program's. An input with an origin is something of the program's, or lies in it."""
    if not graph.returns:
        return
    # input, its source, what is said of it, kind
    shared: list[tuple[int | None, str, str, str]] = []
    from_inputs = set()
    for overlap in graph.overlaps:
        (kind, index), (other, _) = at(overlap.left), at(overlap.right)
        if (kind, other) != ("input", "output") or not returns(graph, overlap.right):
            continue
        source = tensors.origin(graph, graph.inputs[index])
        if source and (found := relation(overlap)):
            from_inputs.add(overlap.right)
            words = f"{overlap.right} is {found}"
            shared.append((index, source, words, _KINDS.get(found, VIEW)))
    names = [tensor.name for tensor in graph.inputs]
    given_out = {source for _, source, _, kind in shared if kind == IDENTITY}
    for name in graph.returned_inputs:
        place = None
        source = ""
        if name in names:
            place = names.index(name)
            source = tensors.origin(graph, graph.inputs[place])
        elif tensors.is_users(graph, name):
            source = name
        if source and source not in given_out:
            shared.append((place, source, "it is returned without a copy", IDENTITY))
    for place, source, words, kind in shared:
        # An incoming gradient that is passed on does no harm: autograd copies what it keeps of a
        # CUDA graph. A library knows its own caches.
        in_library = not tensors.source.project.holds(graph.file)
        written = place is not None and is_written(graph, place) and not in_library
        serious = written or bool(graph.cuda_graphs and not graph.backward)
        if (in_library or graph.backward) and not serious:
            continue
        pair = f"{said(source)}: {words}"
        yield _alias(tensors, graph, OUTPUT_INPUT, kind, pair, serious=serious)
    for overlap in graph.overlaps:  # two views of one input are told by that input
        if {at(overlap.left)[0], at(overlap.right)[0]} != {"output"} or {
            overlap.left,
            overlap.right,
        } <= from_inputs:
            continue
        if not (returns(graph, overlap.left) and returns(graph, overlap.right)):
            continue
        if found := relation(overlap):
            pair = "not known exactly"
            if found != "unknown":
                pair = f"{overlap.left} and {overlap.right}: one is {found}"
            kind = _KINDS.get(found, VIEW)
            serious = bool(graph.cuda_graphs and not graph.backward)
            yield _alias(tensors, graph, OUTPUTS, kind, pair, serious=serious)
    for name in graph.returned_twice:
        if name not in names and name not in graph.returned_inputs:
            pair = f"{name} is returned twice"
            yield _alias(
                tensors,
                graph,
                OUTPUTS,
                IDENTITY,
                pair,
                serious=bool(graph.cuda_graphs),
            )


def _held(tensors: RunTensors, graph: m.WatchedGraph, *, on_cuda: bool) -> Iterator[Alias]:
    """A result that is still there when the call after its own has ended: with CUDA graphs it was
    written over."""
    if not graph.cuda_graphs:
        return
    words = "would be kept beyond the next replay on CUDA"
    if on_cuda:
        words = "is kept beyond the next replay"
    marks = "no step was marked as begun"
    if marked := tensors.tensors.steps_marked:
        marks = f"cudagraph_mark_step_begin was called {plural(marked, 'time')}"
    for held in graph.held_outputs:
        if tensors.steady(held.calls):
            pair = f"output {held.output} {words} ({marks})"
            yield _alias(tensors, graph, OUTPUTS, REPLAY, pair, serious=on_cuda)


def _inputs(tensors: RunTensors, graph: m.WatchedGraph) -> Iterator[Alias]:
    """Only where one of the two is written to: reading does no harm."""
    for overlap in graph.overlaps:
        (kind, left), (other, right) = at(overlap.left), at(overlap.right)
        if (kind, other) != ("input", "input") or not (
            is_written(graph, left) or is_written(graph, right)
        ):
            continue
        if found := relation(overlap):
            names = f"{said(graph.inputs[left].name)} and {said(graph.inputs[right].name)}"
            pair = f"{names} share memory, and one is written to"
            serious = found != "unknown"
            yield _alias(tensors, graph, OVERLAPPING, INPUTS, pair, serious=serious)
    for index, tensor in enumerate(graph.inputs):
        if is_written(graph, index) and (held := next(iter(tensor.held), None)) is not None:
            itself = overlaps_itself(held.last)
            if itself is not False:
                pair = (
                    f"{said(tensor.name)} has elements that share memory (stride "
                    f"{list(held.last.stride)})"
                )
                yield _alias(
                    tensors,
                    graph,
                    OVERLAPPING,
                    INTERNAL,
                    pair,
                    serious=itself is True,
                )


def _alias(
    tensors: RunTensors,
    graph: m.WatchedGraph,
    rule: m.Rule,
    kind: str,
    pair: str,
    *,
    serious: bool,
) -> Alias:
    place = tensors.definition(graph)
    identity = [*(tensors.source.identity(place) or (user_function(graph.function),))]
    if graph.backward:
        identity.append("backward")
    if rule is OVERLAPPING and not serious:
        kind = UNKNOWN
    return Alias(
        run=tensors.key,
        rule=rule.id,
        kind=kind,
        function=tensors.named(graph),
        location=place,
        pairs=(pair,),
        serious=serious,
        identity="\0".join(identity),
        detail=tensors.intent(graph),
    )


# ---------------------------------------------------------------- torch.cond


def _refused(evidence: Evidence) -> list[Alias]:
    """One event a line of torch.cond, from the frames whose compilation raised and from runs that
    ended so: at the line that torch quotes of the user's stack, else at the compiled function's, or
    in an eager call at the traceback's."""
    events = []
    for trace in evidence.compilers:
        for row in trace.all.frames:
            if row.outcome == "raised" and (kind := refused_branch(row.text)):
                compiled = next(iter(trace.compilations_of(row)), None)
                place = quoted_line(trace.source, row.text.partition(_USER_CODE)[2])
                if place is None and compiled is not None:
                    place = trace.source.innermost(compiled.stack)
                events.append(_cond(trace.run, trace.source, kind, place, row.text))
    for run in evidence.runs:
        text = run.record.exit.traceback
        if run.record.exit.outcome == "raised" and (kind := refused_branch(text)):
            raising, _, quoted = text.partition(_USER_CODE)
            place = quoted_line(run.source, quoted) or quoted_line(run.source, raising)
            events.append(_cond(run.key, run.source, kind, place, text))
    return [same[0] for same in grouped(events, lambda event: (event.run, line_of(event.location)))]


def refused_branch(text: str) -> str:
    """What torch refused, where it speaks of torch.cond."""
    named = _OPERATOR.search(text)
    if named is None or not named[1].endswith("cond"):
        return ""
    return next((_REFUSED[name] for name in _ID.findall(text) if name in _REFUSED), "")


def quoted_line(source: SourceText, text: str) -> m.Location | None:
    """The innermost line of the project in a stack that torch quotes outermost first."""
    lines = (found.group("file", "line", "function") for found in _FILE_LINE.finditer(text))
    stack = tuple(m.Location(file, int(line), name or "") for file, line, name in lines)
    return source.innermost(stack)


def _cond(
    run: m.RunKey, source: SourceText, kind: str, place: m.Location | None, text: str
) -> Alias:
    words = "writes to an operand"
    if kind == ALIASING:
        words = "returns an operand, a view of one, or one tensor twice"
    function = ""
    branches: tuple[m.Location, ...] = ()
    if place is not None:
        function = place.function
        branches = source.branches(place, "cond")
    _, encountered, why = text.partition("Encountered")
    return Alias(
        run=run,
        rule=COND.id,
        kind=kind,
        function=function,
        location=place,
        pairs=(f"a branch of torch.cond {words}",),
        serious=True,
        identity="\0".join(source.identity(place)),
        related=branches,
        detail=(f"{encountered}{why}" or text).partition(_USER_CODE)[0].strip(),
    )


# ---------------------------------------------------------------- findings


@of_each
def diagnose(event: Alias) -> Iterator[m.Finding]:
    rule = next(rule for rule in RULES if rule.id == event.rule)
    pairs = "; ".join(event.pairs[:4])
    if len(event.pairs) > 4:
        pairs += f"; and {len(event.pairs) - 4} more"
    what = {
        OUTPUT_INPUT.id: (
            f"{event.function} returns memory that it shares with its arguments: {pairs}"
        ),
        OUTPUTS.id: f"results of {event.function} share memory: {pairs}",
        OVERLAPPING.id: f"inputs of {event.function} overlap: {pairs}",
        COND.id: f"{pairs}: torch refuses it",
    }[event.rule]
    yield finding(
        rule,
        event,
        what,
        event.identity,
        event.kind,
        is_note=not event.serious,
        related=event.related,
        detail=event.detail,
    )
