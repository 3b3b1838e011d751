"""KGP404: tensors that a compiled graph was given and that it writes to, with the line that writes.

Two sources: the operators of the captured graph, which have lines, and the versions of the inputs
around each run, which rise whatever wrote. Neither sees a write through ``.data`` or numpy inside
an operator of the user's own.
"""

from collections.abc import Iterator

import msgspec

from kgprof import model as m
from kgprof.collectors.event import Event, finding, of_each
from kgprof.collectors.fingerprint import grouped, line_of
from kgprof.collectors.tensors.tensor_facts import (
    RunTensors,
    is_gradient,
    is_written,
    run_tensors,
    said,
)
from kgprof.reading.evidence import Evidence

INPUT_MUTATED = m.Rule(
    id="KGP404",
    name="input-mutated",
    level=m.Level.WARNING,
    summary="A compiled function writes to one of its arguments or to a captured tensor.",
    why=(
        "A CUDA graph would write to its own copy of an input without a fixed address, so torch "
        "does not capture such a function and launches every kernel from the CPU: the results stay "
        "right, but the graph is lost. Without CUDA graphs the write costs a copy at the end of "
        "the graph. A parameter, a module's buffer or a tensor marked static has a fixed address; "
        "writing to it is harmless and reported as a note. A result of an earlier CUDA "
        "graph may be written to as well."
    ),
    example=(
        "def step(x): x.mul_(2) under mode='reduce-overhead'; cache[i] = x with "
        "cache a captured tensor."
    ),
    remedy=(
        "For CUDA graphs: return the new value and copy it outside the compiled function, or "
        "register the tensor as a buffer of the module. For a tensor outside a module use "
        "torch._dynamo.mark_static_address(tensor)."
    ),
    topic=m.Topic.TENSORS,
    seen_in=((m.Witness.TENSORS,),),
    can_cost=(m.CostKind.COPIES,),
)
RULES = (INPUT_MUTATED,)

ARGUMENT, CAPTURED, FIXED = "argument", "captured tensor", "fixed address"


class Mutation(Event):
    """One line that writes into inputs of a compiled function. ``kind``: the worst of them."""

    function: str
    # the def (of a backward too) where no operator of the graph is known to write
    names: tuple[str, ...]
    operators: tuple[str, ...]
    kind: str
    cuda_graphs: bool
    backward: bool = False
    in_project: bool = True  # else a library's function


def collect(evidence: Evidence) -> tuple[Mutation, ...]:
    """One event a line."""
    lines = []
    for tensors in evidence.once(run_tensors):
        for events in grouped(
            filter(lambda event: _is_told(tensors, event), writes(tensors)),
            lambda event: (line_of(event.location, event.function), event.backward),
        ):
            lines.append(
                msgspec.structs.replace(
                    events[0],
                    names=tuple(dict.fromkeys(name for event in events for name in event.names)),
                    operators=tuple(
                        dict.fromkeys(name for event in events for name in event.operators)
                    ),
                    kind=min(
                        (event.kind for event in events), key=(ARGUMENT, CAPTURED, FIXED).index
                    ),
                )
            )
    return tuple(lines)


def _is_told(tensors: RunTensors, event: Mutation) -> bool:
    """Running statistics and caches of a library, and of a script: nothing is lost by it without
    CUDA graphs."""
    own = event.in_project and not tensors.of_script
    return own or (event.kind != FIXED and event.cuda_graphs)


def writes(tensors: RunTensors) -> Iterator[Mutation]:
    """Each input of one run's graphs to which its graph writes, by line."""
    for graph in tensors.graphs:
        definition = tensors.definition(graph)
        for index, tensor in enumerate(graph.inputs):
            name = tensors.origin(graph, tensor)
            if not name or is_gradient(tensor.name) or not is_written(graph, index):
                continue
            giver, given = tensors.giver(graph, name)
            kind = CAPTURED
            if (given or tensor).static:
                kind = FIXED
            elif tensors.is_argument(giver, name) or name.startswith(m.INCOMING):
                kind = ARGUMENT
            operators: dict[m.Location | None, list[str]] = {}
            for write in graph.in_place:
                if write.input == index:
                    operators.setdefault(tensors.innermost(write.frames) or definition, []).append(
                        write.operator
                    )
            for place, written in (operators or {definition: []}).items():
                identity = [*tensors.source.identity(place)]
                if graph.backward:
                    identity.append("backward")
                yield Mutation(
                    run=tensors.key,
                    function=tensors.named(graph),
                    location=place,
                    names=(said(name),),
                    operators=tuple(dict.fromkeys(written)),
                    kind=kind,
                    cuda_graphs=bool(graph.cuda_graphs),
                    identity="\0".join(identity),
                    backward=graph.backward,
                    in_project=tensors.source.project.holds(graph.file),
                )


@of_each
def diagnose(event: Mutation) -> Iterator[m.Finding]:
    argument, captured = "argument", "a captured tensor without a fixed address"
    fixed = "which is at a fixed address"
    if len(event.names) > 1:
        argument, captured = "arguments", "captured tensors without fixed addresses"
        fixed = "which are at fixed addresses"
    by = ", by an operator whose line was not observed"
    if event.operators:
        by = f" ({', '.join(event.operators)})"
    names = ", ".join(event.names)
    what = {
        ARGUMENT: f"its {argument} {names}{by}",
        CAPTURED: f"{names}, {captured}{by}",
        FIXED: f"{names}{by}, {fixed}: harmless",
    }[event.kind]
    yield finding(
        INPUT_MUTATED,
        event,
        f"the compiled {event.function} writes to {what}",
        event.identity,
        *event.names,
        is_note=event.kind == FIXED,
        names=event.names,
    )
