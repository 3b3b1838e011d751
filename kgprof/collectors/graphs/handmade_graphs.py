"""KGP306 to KGP308: CUDA graphs that a program records itself, and the tensors that its replays
read or write.

What is seen, and what is not, stands in ``record/listeners/handmade_graphs.py``. Where no replay
was wrong, nothing is said.
"""

from collections.abc import Iterator

from kgprof import model as m
from kgprof.collectors.event import Event, finding
from kgprof.collectors.fingerprint import grouped
from kgprof.reading.evidence import Evidence, RunEvidence
from kgprof.wording import clause, plural

REPLACED_INPUT = m.Rule(
    id="KGP306",
    name="graph-input-replaced",
    level=m.Level.WARNING,
    summary=(
        "A CUDA graph that the program recorded reads a tensor that was freed or "
        "replaced since the capture."
    ),
    why=(
        "A replay reads the addresses of the capture. If a variable was assigned a new tensor, the "
        "replay still uses the old one; if that was freed, it reads whatever is in its memory now. "
        "No error is raised, and the results belong to a different input. kgprof watches the "
        "variables that held the tensor during the capture, the lifetime of its memory, and its "
        "version, which shows whether anything wrote to it."
    ),
    example="x = next(batches); graph.replay(): the graph still reads the x of the capture.",
    remedy=(
        "Keep the captured tensor, and copy each new value into it: static_x.copy_(x, "
        "non_blocking=True); graph.replay(). In newer releases of torch, "
        "capture_begin(check_input_liveness=True) raises an error for a freed one."
    ),
    topic=m.Topic.TENSORS,
    seen_in=((m.Witness.CUDA, m.Witness.HANDMADE_GRAPHS),),
    can_cost=(),
)
KEPT_OUTPUT = m.Rule(
    id="KGP307",
    name="graph-output-kept",
    level=m.Level.WARNING,
    summary=(
        "An output of a CUDA graph that the program recorded is kept, and the next "
        "replay overwrites it."
    ),
    why=(
        "Each replay writes its outputs to the same addresses. A list of the outputs of many "
        "replays holds one tensor many times, with the values of the last replay. kgprof counts "
        "the references to an output: one more after each of three replays in a row."
    ),
    example=(
        "for x in batches: static_x.copy_(x); graph.replay(); "
        "outputs.append(static_y) without a clone."
    ),
    remedy="Clone what you keep beyond the next replay: outputs.append(static_y.clone()).",
    topic=m.Topic.TENSORS,
    seen_in=((m.Witness.CUDA, m.Witness.HANDMADE_GRAPHS),),
    can_cost=(),
)
CAPTURED_AGAIN = m.Rule(
    id="KGP308",
    name="graph-captured-again",
    level=m.Level.WARNING,
    summary=(
        "A line captures a CUDA graph in every step, and no capture is replayed in a second step."
    ),
    why=(
        "A capture runs the whole function on the CPU, waits for the GPU, and makes a new graph "
        "with its own memory; only replays save launches. A graph that is captured for each step "
        "costs more than eager code. A graph for each of several shapes, captured when the shape "
        "first occurs and replayed later, is not reported."
    ),
    example="for x in batches: with torch.cuda.graph(graph): y = model(x); then graph.replay().",
    remedy=(
        "Capture once, before the loop, on a static input; in the loop static_x.copy_(x); "
        "graph.replay(). For several shapes keep one graph per shape in a dict."
    ),
    topic=m.Topic.CUDA_GRAPHS,
    seen_in=((m.Witness.CUDA, m.Witness.HANDMADE_GRAPHS),),
    can_cost=(m.CostKind.HOST,),
)
RULES = (REPLACED_INPUT, KEPT_OUTPUT, CAPTURED_AGAIN)

# steps after warm-up, from which on captures at a line are a habit and not the last shape of a few
AGAIN = 3


class WrongTensor(Event):
    """One tensor of one graph."""

    location: m.Location  # the line of the capture that read it, or made it
    captured_at: m.Location
    tensor: m.GraphTensor
    replays: int  # of the graph, of which those of ``tensor`` are a part


class Recapture(Event):
    """Captures at one line after warm-up that no other step replays."""

    location: m.Location
    steps: int
    replays: int  # of these captures together


def collect(evidence: Evidence) -> tuple[WrongTensor | Recapture, ...]:
    wrong = tuple(event for run in evidence.runs for event in _of_run(run))
    return (*wrong, *(event for run in evidence.runs for event in _captured_again(run)))


def _captured_again(run: RunEvidence) -> Iterator[Recapture]:
    memory = run.record.memory
    if not isinstance(memory, m.MemoryPass):
        return
    late = (graph for graph in memory.graphs if graph.captured_in >= memory.steady_from)
    for graphs in grouped(late, lambda graph: graph.frames[0]):
        single = [graph for graph in graphs if len(graph.replays) < 2]  # by step
        steps = {graph.captured_in for graph in single}
        if len(steps) >= AGAIN and 2 * len(single) > len(graphs):
            at = graphs[0].frames[0]
            place = run.source.at(at.file, at.line, at.function)
            yield Recapture(
                run=run.key,
                location=place,
                steps=len(steps),
                replays=sum(sum(graph.replays.values()) for graph in single),
                identity="\0".join(run.source.identity(place)),
            )


def _of_run(run: RunEvidence) -> Iterator[WrongTensor]:
    memory = run.record.memory
    source = run.source
    if not isinstance(memory, m.MemoryPass):
        return
    for graph in memory.graphs:
        first = graph.frames[0]
        for tensor in graph.wrong:
            place = source.at(tensor.at.file, tensor.at.line, tensor.at.function)
            yield WrongTensor(
                run=run.key,
                location=place,
                captured_at=source.at(first.file, first.line, first.function),
                tensor=tensor,
                replays=min(m.REPLAYS_WATCHED, sum(graph.replays.values())),
                identity="\0".join(
                    (*source.identity(place), tensor.name, str(tensor.what == "kept"))
                ),
            )


def diagnose(events: tuple[WrongTensor | Recapture, ...]) -> tuple[m.Finding, ...]:
    wrong = (event for event in events if isinstance(event, WrongTensor))
    again = (event for event in events if isinstance(event, Recapture))
    tensors = map(_finding, grouped(wrong, lambda event: (event.run, event.identity)))
    return (*tensors, *map(_of_captures, again))


def _of_captures(event: Recapture) -> m.Finding:
    replays = f"{plural(event.replays, 'replay')}, no graph in two steps"
    return finding(
        CAPTURED_AGAIN,
        event,
        (
            f"a CUDA graph is captured again in {plural(event.steps, 'step')} after "
            f"warm-up ({replays})"
        ),
        event.identity,
        count=event.steps,
    )


def _finding(events: list[WrongTensor]) -> m.Finding:
    """One tensor may be rebound in one replay and freed in the next: the graver is said."""
    event = min(events, key=lambda each: each.tensor.what)
    tensor = event.tensor
    replays = min(event.replays, sum(each.tensor.replays for each in events))
    shape = list(tensor.shape)
    which = f"{tensor.name or 'a tensor'} of shape {shape}"
    now = clause("; ", tensor.name, " now holds another tensor")
    rule = REPLACED_INPUT
    match tensor.what:
        case "kept":
            rule = KEPT_OUTPUT
            message = (
                f"an output of shape {shape} is kept across replays, but each replay overwrites it"
            )
        case "freed":
            message = f"the CUDA graph reads {which}, which was freed after the capture{now}"
        case _:
            message = (
                f"the CUDA graph still reads the {which} of the capture, which was not updated{now}"
            )
    related: tuple[m.Location, ...] = ()
    if event.captured_at != event.location:
        related = (event.captured_at,)
    return finding(
        rule,
        event,
        f"{message} (in {replays} of the first {plural(event.replays, 'replay')})",
        event.identity,
        related=related,
        count=replays,
    )
