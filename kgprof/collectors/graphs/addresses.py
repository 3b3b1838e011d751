"""KGP305 and KGP401: inputs of compiled graphs that do not stay where they are, and what a CUDA
graph copies for it.

An address counts as another one also where the allocator has given an old one out again: nothing
promises that it will. What one graph of a call hands to the next is no input of the program's, and
gradients are new in each step by torch's own default; neither is reported, but for the gradient
that the CUDA graph of a backward copies.

What a CUDA graph copies is proven by the ``aten::_foreach_copy_`` in the compiled region of the
trace, beside a launch; which inputs it were is told by what Dynamo marked as fixed. On a CPU both
are a prediction.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from kgprof import model as m
from kgprof.collectors.event import Event, finding
from kgprof.collectors.fingerprint import grouped, line_of
from kgprof.collectors.graphs.cuda_graphs import NOT_ON_CPU
from kgprof.collectors.tensors.tensor_facts import (
    RunTensors,
    is_gradient,
    last_name,
    run_tensors,
    said,
    writes_what_moves,
)
from kgprof.measures.input_copies import input_copies_in_trace
from kgprof.reading.evidence import Evidence, RunEvidence
from kgprof.reading.launches import innermost
from kgprof.reading.timeline import NOBODY
from kgprof.wording import clause

COPY_BYTES = 1 << 20  # a replay; from here on a copy is a warning, below it one short kernel

COPIED = m.Rule(
    id="KGP305",
    name="input-copied-each-replay",
    level=m.Level.WARNING,
    summary="A CUDA graph copies this input into its own memory before each replay.",
    why=(
        "A CUDA graph reads the addresses that it was recorded with. torch therefore copies every "
        "input whose address is not known to be fixed into a buffer of the graph before each "
        "replay: one more launch, and as much memory traffic as the input is large. Below "
        f"{COPY_BYTES:,} bytes per replay it is a note; on a CPU it is a prediction."
    ),
    example=(
        "state = step(state) with mode='reduce-overhead': the whole state is copied in every step."
    ),
    remedy=(
        "Keep the tensor in a buffer of the module, or mark it with "
        "torch._dynamo.mark_static_address, and write the new values into it with copy_. A batch "
        "that comes from outside has to be copied; copy it only once."
    ),
    topic=m.Topic.CUDA_GRAPHS,
    seen_in=((m.Witness.TENSORS,),),
    can_cost=(m.CostKind.COPIES, m.CostKind.HOST),
    relieves=(m.LimitKind.MEMORY,),
)
UNSTABLE = m.Rule(
    id="KGP401",
    name="unstable-input-address",
    level=m.Level.WARNING,
    summary=(
        "After warm-up an input of a compiled region is at a different address from "
        "the previous call."
    ),
    why=(
        "CUDA graphs, and every cache keyed by an address, need memory that stays in place. A "
        "tensor that each step replaces (x = f(x)) instead of overwriting is new memory every "
        "time: torch copies it before each replay, or records the graph again. Where no CUDA graph "
        "is asked for, this is a note, unless a compiled graph made the tensor: keep that in place "
        "before you ask for one."
    ),
    example=(
        "self.state = self.cell(x, self.state), in place of "
        "self.state.copy_(self.cell(x, self.state))."
    ),
    remedy=(
        "Allocate the tensor once and write into it: state.copy_(new), or torch._foreach_copy_ for "
        "many, outside the compiled function. A new batch in each step is fine unless CUDA graphs "
        "are used."
    ),
    topic=m.Topic.TENSORS,
    seen_in=((m.Witness.TENSORS,),),
    can_cost=(m.CostKind.COPIES, m.CostKind.HOST),
)
RULES = (COPIED, UNSTABLE)

FOREACH_COPY, REGION, LAUNCH = "aten::_foreach_copy_", "## Call CompiledFxGraph", "cudaGraphLaunch"
MUTATED, REBOUND, COPIED_INTO, UNWRITTEN = "mutated", "rebound", "copied", "unwritten"


class AddressChange(Event):
    """Inputs that one line passes at changing addresses, or a declared buffer that does not
    stay."""

    related: tuple[m.Location, ...]  # other lines that bind the same name
    is_assigned_often: bool = False  # more than one line binds it; ``location`` may be the call
    names: tuple[str, ...]
    functions: tuple[str, ...]  # that take them
    calls: tuple[int, ...]  # after warm-up, in which one lay elsewhere than in the call before
    in_turn: bool = False  # some of them moved in some of these calls, others in others
    steps: int  # after warm-up that were watched; 0: not known
    carried: tuple[str, ...]  # graph outputs of earlier calls that they were: "0/0 output 1"
    declared: bool
    cuda_graphs: bool


class CopiedInput(Event):
    """Inputs that one line passes to graphs that copy them."""

    names: tuple[str, ...]
    functions: tuple[str, ...]
    size_bytes: int  # of all of them, in one replay of each graph
    cost: m.FindingCost | m.Skipped  # of the copies
    copies_per_step: float | m.Skipped  # seen in TRACE, of the whole step
    on_cuda: bool


class BufferUse(m.Model, kw_only=False):
    """How one declared buffer gets its next values. ``pattern``: copied (written outside of
    compiled graphs), mutated (inside), rebound, unwritten."""

    run: m.RunKey
    name: str
    pattern: str
    dtype: str
    calls: tuple[int, ...]  # after warm-up, in which it came to lie elsewhere
    made_by: tuple[str, ...]  # graph outputs that became the buffer; empty: not observed
    lines: tuple[m.Location, ...]  # that bind the name, where it is rebound


AddressEvent = AddressChange | CopiedInput | BufferUse
Passed = tuple[m.WatchedGraph, m.GraphInput, m.Held]


# ---------------------------------------------------------------- events


def collect(evidence: Evidence) -> tuple[AddressEvent, ...]:
    events: list[AddressEvent] = []
    for tensors in evidence.once(run_tensors):
        buffers = tuple(_buffer(tensors, buffer) for buffer in tensors.tensors.buffers or ())
        # Names of arguments that take a declared buffer, by the memory where both lay first -> the
        # buffer's name.
        lay = {(b.first.address, b.first.shape): b.name for b in tensors.tensors.buffers or ()}
        passed: dict[tuple[str, str], str] = {}
        for graph, tensor, held in passed_inputs(tensors):
            name = lay.get((held.first.address, held.first.shape))
            if name is not None and tensors.is_argument(graph, tensor.name):
                passed.setdefault((graph.compile_id, tensor.name), name)
        events += buffers
        events += _changes(tensors, passed)
        events += _of_buffers(
            tensors, [buffer for buffer in buffers if buffer.name not in passed.values()]
        )
        events += _copied(tensors)
    return tuple(events)


def _buffer(tensors: RunTensors, buffer: m.WatchedBuffer) -> BufferUse:
    calls = tensors.steady(tuple(sorted({*buffer.rebound, *buffer.moved})))
    lines: tuple[m.Location, ...] = ()
    # What happens after warm-up; what only the first calls do is set-up.
    pattern = UNWRITTEN
    if calls:
        pattern = REBOUND
        lines = tensors.source.rebound(buffer.name.rpartition(".")[2])
    elif tensors.steady(buffer.written_inside):
        pattern = MUTATED
    elif tensors.steady(buffer.written_outside):
        pattern = COPIED_INTO
    return BufferUse(
        tensors.key, buffer.name, pattern, buffer.last.dtype, calls, tuple(buffer.made_by), lines
    )


def _changes(tensors: RunTensors, declared: dict[tuple[str, str], str]) -> Iterator[AddressChange]:
    """One event a line for all tensors and graphs that it moves, and one for those that a graph had
    made. A declared buffer that is captured has an event of its own, at the line that rebinds
    it."""
    captured = {buffer.name.rpartition(".")[2] for buffer in tensors.tensors.buffers or ()}
    moving = []
    for graph, tensor, held in passed_inputs(tensors):
        from_this_call = sum(held.made_now.values())
        told = not tensors.is_argument(graph, tensor.name) and last_name(tensor.name) in captured
        # A script has a new batch in each step, and one compiled block may be called for each layer
        # of a model.
        costs = not tensors.of_script or bool(graph.cuda_graphs and held.made_before)
        if costs and tensors.steady(held.moved) and len(held.moved) > from_this_call and not told:
            moving.append((graph, tensor, held))
    for lines, passed in _by_line(tensors, moving, lambda held: (bool(held.made_before),)):
        calls: dict[str, set[int]] = {}
        for _, tensor, held in passed:
            calls.setdefault(said(tensor.name), set()).update(tensors.steady(held.moved))
        every = set().union(*calls.values())
        yield AddressChange(
            **_fields(tensors, lines, passed),
            related=lines[1:],
            # looked for in the whole project, so only where it matters
            is_assigned_often=len(lines) > 1
            and len(tensors.source.rebound(last_name(passed[0][1].name))) > 1,
            calls=tuple(sorted(every)),
            in_turn=any(moved != every for moved in calls.values()),
            steps=len(tensors.steady(tensors.tensors.watched)),
            carried=_once(maker for _, _, held in passed for maker in held.made_before),
            declared=any(
                (graph.compile_id, tensor.name) in declared for graph, tensor, _ in passed
            ),
            cuda_graphs=any(graph.cuda_graphs for graph, _, _ in passed),
        )


def passed_inputs(tensors: RunTensors) -> Iterator[Passed]:
    """What the program passes to its graphs."""
    for graph in tensors.tensors.graphs:
        for tensor in graph.inputs:
            is_given = not tensor.is_made and not is_gradient(tensor.name)
            if is_given and tensors.is_users(graph, tensor.name):
                yield from ((graph, tensor, held) for held in tensor.held)


def _by_line(
    tensors: RunTensors,
    passed: list[Passed],
    by: Callable[[m.Held], tuple[object, ...]] = lambda held: (),
) -> Iterator[tuple[tuple[m.Location, ...], list[Passed]]]:
    """With the lines that pass the first of each group, or bind its name; those of backwards for
    themselves, and those that differ in ``by``."""
    inputs = [
        (tensors.passing(graph, tensor.name, held), (graph, tensor, held))
        for graph, tensor, held in passed
    ]
    for group in grouped(
        inputs,
        lambda one: (
            line_of(next(iter(one[0]), None), one[1][0].compile_id),
            one[1][0].backward,
            *by(one[1][2]),
        ),
    ):
        yield group[0][0], [one for _, one in group]


def _fields(
    tensors: RunTensors, lines: tuple[m.Location, ...], passed: list[Passed]
) -> dict[str, Any]:
    """What both events say of the inputs that one line passes."""
    first = next(iter(lines), None)
    return {
        "run": tensors.key,
        "location": first,
        "names": _once(said(tensor.name) for _, tensor, _ in passed),
        "functions": _once(tensors.named(graph) for graph, _, _ in passed),
        "identity": "\0".join(tensors.source.identity(first)),
    }


def _once(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))


def _of_buffers(tensors: RunTensors, buffers: list[BufferUse]) -> Iterator[AddressChange]:
    """A line that rebinds several buffers is one event."""
    moved = (buffer for buffer in buffers if buffer.calls)
    for group in grouped(
        moved, lambda buffer: line_of(next(iter(buffer.lines), None), buffer.name)
    ):
        lines = group[0].lines
        first = next(iter(lines), None)
        yield AddressChange(
            run=tensors.key,
            location=first,
            related=lines[1:],
            is_assigned_often=len(lines) > 1,
            names=tuple(buffer.name for buffer in group),
            functions=(),
            calls=tuple(sorted({call for buffer in group for call in buffer.calls})),
            steps=len(tensors.steady(tensors.tensors.watched)),
            carried=_once(maker for buffer in group for maker in buffer.made_by),
            declared=True,
            cuda_graphs=any(graph.cuda_graphs for graph in tensors.tensors.graphs),
            identity="\0".join(tensors.source.identity(first)),
        )


def _copied(tensors: RunTensors) -> Iterator[CopiedInput]:
    on_cuda = tensors.run.whole.device == "cuda"
    graphs = [
        graph for graph in tensors.graphs if graph.cuda_graphs and not writes_what_moves(graph)
    ]
    if not graphs:
        return
    launches, copies, took = _copies(tensors.run)
    if launches == 0:
        return  # no graph was replayed, so nothing was copied into one; KGP303 says so
    copied = []
    # What the forward kept for its backward stays where it is; the gradient of a loss is one
    # number.
    coming_in = (
        (graph, tensor, held)
        for graph in tensors.tensors.backwards
        for tensor in graph.inputs
        for held in tensor.held
        if tensor.name.startswith(m.INCOMING) and held.last.shape
    )
    for graph, tensor, held in (*passed_inputs(tensors), *coming_in):
        # the first call may run a graph several times, to warm it up
        steady = held.watched > tensors.steady_from
        # torch's own rule: neither fixed nor made by the graph before, and on the device.
        moves = not tensor.static and held.last.size_bytes > 0 and not held.made_now
        if (
            steady
            and graph in graphs
            and moves
            and (held.last.device.startswith("cuda") or not on_cuda)
        ):
            copied.append((graph, tensor, held))
    groups = list(_by_line(tensors, copied))
    # a trace does not say whose input a copy is
    if len(groups) > 1 and isinstance(took, m.FindingCost):
        together = (
            f"the inputs of {len(groups)} places are copied together: {took.value:,.1f} "
            "µs per step in all"
        )
        took = m.Skipped(together)
    for lines, passed in groups:
        # several runs of a graph in one step are several replays
        sizes = {(graph.compile_id, it.name): held.last.size_bytes for graph, it, held in passed}
        yield CopiedInput(
            **_fields(tensors, lines, passed),
            size_bytes=sum(sizes.values()),
            copies_per_step=copies,
            cost=took,
            on_cuda=on_cuda,
        )


def _copies(
    run: RunEvidence,
) -> tuple[float | m.Skipped, float | m.Skipped, m.FindingCost | m.Skipped]:
    """Launches of CUDA graphs and copies inside compiled regions, a step of TRACE; what those
    before a replay took."""
    if run.whole.device != "cuda":
        return NOT_ON_CPU, NOT_ON_CPU, NOT_ON_CPU
    traced, trace = run.record.trace, run.trace(m.PassName.TRACE)
    if isinstance(trace, m.Skipped):
        return trace, trace, trace
    assert isinstance(traced, m.TracePass)  # a pass without one has no trace
    columns, steps = trace.columns, max(1, len(traced.step_us))
    copied = np.flatnonzero(columns.named(FOREACH_COPY))
    inside = np.count_nonzero(innermost(columns, columns.named(REGION), copied) != NOBODY)
    took, what = run.once(input_copies_in_trace), "GPU time of the copies before each replay"
    cost: m.FindingCost | m.Skipped = m.Skipped("TRACE shows no GPU copy before a replay")
    if isinstance(took, m.Skipped):
        cost = took
    elif took.count:
        cost = m.FindingCost(took.total_us / steps, "us/step", what, (m.PassName.TRACE,), steps)
    return np.count_nonzero(columns.named(LAUNCH)) / steps, inside / steps, cost


# ---------------------------------------------------------------- findings


def diagnose(events: tuple[AddressEvent, ...]) -> tuple[m.Finding, ...]:
    moved = (_moved(event) for event in events if isinstance(event, AddressChange))
    return (*moved, *(_copied_finding(event) for event in events if isinstance(event, CopiedInput)))


def _moved(event: AddressChange) -> m.Finding:
    buffer, given = "the declared buffer ", "input"
    if len(event.names) > 1:
        buffer, given = "the declared buffers ", "inputs"
    what = ", ".join(event.names)
    if event.declared:
        what = buffer + what
    what += clause(f", {given} of ", ", ".join(event.functions), ",")
    is_note = not (event.declared or event.cuda_graphs or event.carried)
    moved = "moved to another address"
    # the allocator may have given the old address out again
    if is_note:
        moved = "came in other memory or at another address"
    times = f"in {len(event.calls)}{clause(' of ', event.steps, ' watched')} steps after warm-up"
    if event.in_turn:
        times += " (not all of them in each)"
    why = clause(": it is new memory, made by compiled graph ", ", ".join(event.carried))
    if event.carried and event.functions:
        why += " in an earlier call"
    if event.is_assigned_often:
        why += "; it is assigned on more than one line"
    return finding(
        UNSTABLE,
        event,
        f"{what} {moved} {times}, last in step {event.calls[-1]}{why}",
        event.identity,
        *event.names,
        is_note=is_note,
        count=len(event.calls),
        related=event.related,
        names=event.names,
    )


def _copied_finding(event: CopiedInput) -> m.Finding:
    names, functions = ", ".join(event.names), ", ".join(event.functions)
    size = f"{event.size_bytes:,} bytes"
    if event.names[0].startswith(m.INCOMING):
        size += " (a loss computed inside the compiled function sends one number instead)"
    message = f"the CUDA graph of {functions} copies {names} before each replay: {size}"
    is_note = True
    if not event.on_cuda:
        message = f"on CUDA the graph of {functions} would copy {names} before each replay: {size}"
    elif isinstance(event.copies_per_step, m.Skipped):
        message += f" (by torch's rule; copies were not observed: {event.copies_per_step.reason})"
    elif event.copies_per_step <= 0:
        message += " (by torch's rule; TRACE shows no copy in a compiled region)"
    else:
        is_note = event.size_bytes < COPY_BYTES
    return finding(
        COPIED,
        event,
        message,
        event.identity,
        *event.names,
        is_note=is_note,
        cost=event.cost,
    )
