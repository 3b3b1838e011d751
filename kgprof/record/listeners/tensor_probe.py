"""Addresses, aliases and versions of what goes into and comes out of each compiled graph, and of
declared buffers.

    Dynamo compiles a graph ──around──► its _Graph, and a function that calls before and after
    each run of the graph ──before, after──► _Graph: an _Input for each argument, outputs, overlaps
    each call of the workload ──call_begins, call_ended──► _Buffers, outputs that are still held
    TensorProbe.records ──► TensorRecords

Around each graph's call, whatever the backend: a function stands where Dynamo calls the graph from
(``installed_graphs``) and reads ``data_ptr``, storage, shape, stride and ``_version`` before and
after. Nothing is copied, and no tensor is held: a storage is remembered by a weak reference, which
tells a new allocation at an old address from the old one and keeps no data alive. A run of a graph
costs 23 us more with one input, 45 with five,
0.23 ms with forty (one core, medians of 300 calls, torch 2.13).

Not seen: writes through ``.data``, numpy and fused optimizers, which leave no trace in a version;
inference tensors have none.

A backward graph is called by AOTAutograd, from a node of autograd whose class belongs to one
compilation; the outputs of the forward lead to it. What it takes is freed while it runs, so only
what is still there afterwards is compared. Not seen: compiled autograd, double backward, and who
keeps a gradient.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from types import FrameType
from typing import Any, NamedTuple

import msgspec
import torch
from msgspec.structs import replace as replaced
from torch.multiprocessing.reductions import StorageWeakRef

from kgprof import model as m
from kgprof.record.ground.python_stack import BY_TORCH, IN_TORCH, Frames, described, upwards
from kgprof.record.ground.source import Function, aside, not_compiled, replace
from kgprof.record.ground.tensor_memory import answer, memory_of, version_of
from kgprof.record.listeners.call_index import CallIndex
from kgprof.record.listeners.captured_graph import (
    Returned,
    captured,
    returned_tensors,
    writes_of_backward,
)
from kgprof.record.listeners.installed_graphs import COMPILE, INSTALL, InstalledGraphs

WATCHED_CALLS = 32  # of the workload, from the first one on; then one in SAMPLE
SAMPLE = 16
RUNS = 8  # of one graph in one call
GRAPHS = 256
PAIRS = 256  # of tensors of one graph whose ranges meet
STACK = 8  # frames above a graph
REMEMBERED = 4096  # outputs of graphs that are still alive

FINISH = "compile_subgraph"  # the method of Dynamo's OutputGraph that ends the capture of a graph
RESUMED = "torch_dynamo_resume_in_"  # Dynamo's name of what goes on behind a graph break

# AOTAutograd's, and who calls it
RUN_BACKWARD = "call_func_at_runtime_with_args"
BACKWARD = "_backward_impl"
COMPILED_NODE = "CompiledFunctionBackward"
# of autograd, from an output to that of the compiled graph: a view of what the graph gave
NODES = 3

Buffers = Callable[[], Mapping[str, torch.Tensor]]


class TensorProbe(InstalledGraphs):
    """Source. ``buffers`` gives the workload's declared buffers (BufferSession.buffers), None where
    it has none."""

    name = "tensor probe"

    needs = (FINISH, COMPILE, INSTALL)

    def __init__(
        self,
        calls: CallIndex,
        buffers: Buffers | None = None,
        *,
        watches: Callable[[int], bool] = lambda call: call < WATCHED_CALLS or call % SAMPLE == 0,
    ) -> None:
        """``watches``: which calls of the workload are looked at; in the others a graph's layer
        does nothing."""
        super().__init__()
        self._calls = calls
        self._watches = watches
        self._watching = True
        self._graphs: list[_Graph] = []
        self._left_out = 0
        self._watched_calls: list[int] = []
        self._steps_marked = self._marks_before = 0
        self._made = _Made()
        self._buffers = _Buffers(buffers, calls, self._made)
        self._backwards: weakref.WeakKeyDictionary[type, _Graph] = weakref.WeakKeyDictionary()
        # By the class of the node: a forward, until its backward has run.
        self._run_backwards: list[_Graph] = []
        self._thread = 0  # that calls the workload
        # by the identity of Dynamo's OutputGraph
        self._returned: dict[int, tuple[Returned, ...]] = {}

    def declare(self, buffers: Buffers) -> None:
        """Of a workload that was loaded while the probe was listening."""
        self._buffers.declared = buffers

    def records(self, number: Callable[[int], int] = int) -> m.TensorRecords:
        return m.TensorRecords(
            graphs=tuple(graph.record(number) for graph in self._graphs),
            buffers=self._buffers.records(),
            watched=tuple(self._watched_calls),
            steps_marked=self._steps_marked,
            left_out=self._left_out,
            backwards=tuple(graph.record(number) for graph in self._run_backwards),
        )

    def renumbered(self, number: Callable[[int], int]) -> m.TensorRecords:
        """The records, with each call made the number of its step; what was before the first is
        left out."""

        def steps(calls: Iterable[int]) -> tuple[int, ...]:
            numbers = set(map(number, calls))
            return tuple(sorted(step for step in numbers if step >= 0))

        def of_input(given: m.GraphInput) -> m.GraphInput:
            held = (replaced(h, moved=steps(h.moved), written=steps(h.written)) for h in given.held)
            return replaced(given, held=tuple(held))

        def of_graph(graph: m.WatchedGraph) -> m.WatchedGraph:
            inputs = tuple(map(of_input, graph.inputs))
            overlaps = (replaced(o, first_call=number(o.first_call)) for o in graph.overlaps)
            outputs = (replaced(o, calls=steps(o.calls)) for o in graph.held_outputs)
            return replaced(
                graph, inputs=inputs, overlaps=tuple(overlaps), held_outputs=tuple(outputs)
            )

        records = self.records(number)
        return replaced(
            records,
            graphs=tuple(map(of_graph, records.graphs)),
            backwards=tuple(map(of_graph, records.backwards)),
            watched=steps(records.watched),
        )

    def listen(self, undo: ExitStack) -> None:
        undo.callback(self._forget)
        super().listen(undo)
        if not self.unavailable:
            self._watch_returns(undo)
            self._watch_backwards(undo)
        self._calls.watchers.append(self)
        undo.callback(self._calls.watchers.remove, self)

    def _forget(self) -> None:
        self._made.by_storage.clear()
        for graph in self._graphs:
            graph.results.clear()

    # ------------------------------------------------------------ around each call of the workload

    @aside
    def call_begins(self) -> None:
        self._marks_before = _marks_left()
        self._watching = self._watches(self._calls.current)
        if self._watching:
            self._watched_calls.append(self._calls.current)
            self._buffers.before()

    @aside
    def call_ended(self) -> None:
        self._steps_marked += max(0, self._marks_before - _marks_left())
        call = self._calls.current
        if self._watching:
            self._buffers.after()
        for graph in self._graphs:
            graph.call_ended(call)
        self._made.prune(call)

    # ------------------------------------------------------------ when a graph is compiled

    def _watch_returns(self, undo: ExitStack) -> None:
        from torch._dynamo.output_graph import OutputGraph

        original = OutputGraph.compile_subgraph

        def finishing(this: Any, translator: Any, reason: Any, *rest: Any, **named: Any) -> Any:
            if not getattr(reason, "graph_break", True) and translator is getattr(
                this, "root_tx", None
            ):
                self.read(self._returned, this, lambda: returned_tensors(translator))
            return original(this, translator, reason, *rest, **named)

        replace(OutputGraph, FINISH, finishing, undo)

    def capture(self, output: Any) -> m.WatchedGraph:
        return captured(output, self._returned.pop(id(output), ()))

    def around(self, output: Any, compiled: Function, found: Any) -> Function:
        if output.root_tx.f_code.co_filename.startswith(BY_TORCH):
            return compiled
        if found is None or len(self._graphs) >= GRAPHS:
            self._left_out += 1
            return compiled
        graph = _Graph(found, self._made)
        self._graphs.append(graph)
        calls = self._calls

        def watched(*args: Any) -> Any:
            call = calls.current
            if not graph.takes(call):
                return compiled(*args)
            before = self._before(graph, call, args, sys._getframe())
            result = compiled(*args)
            if before is not None:
                self._after(graph, call, args, before, result)
            return result

        # It and what it calls run where Dynamo looks at every frame, and must not be compiled
        # themselves.
        watching = torch._dynamo.disable(watched)  # type: ignore[no-untyped-call]

        def passed(*args: Any) -> Any:
            if self._watching:
                return watching(*args)
            return compiled(*args)

        not_compiled(passed)
        return passed

    @aside
    def _before(
        self, graph: _Graph, call: int, args: Sequence[Any], frame: FrameType | None
    ) -> _Places | None:
        return graph.before(call, args, frame)

    @aside
    def _after(
        self,
        graph: _Graph,
        call: int,
        args: Sequence[Any],
        before: _Places,
        result: Any,
    ) -> None:
        self._buffers.ran.update(graph.after(call, args, before, result))
        if not graph.is_backward:
            for node in _backwards_of(result):
                self._backwards.setdefault(type(node), graph)

    @aside
    def _backward_of(self, args: Any) -> _Graph | None:
        """The graph that AOTAutograd is about to run, with what its node tells of it."""
        kind: type = type(None)
        for above in islice(upwards(sys._getframe(3)), 4):
            if above.f_code.co_name == BACKWARD:
                kind = type(above.f_locals.get("ctx"))
                break
        graph = self._backwards.get(kind)
        if graph is None or graph.is_backward:
            return graph
        backward = graph.of_backward(args, getattr(kind, "_forward_cls", None))
        self._backwards[kind] = backward
        self._run_backwards.append(backward)
        return backward

    def _watch_backwards(self, undo: ExitStack) -> None:
        from torch._functorch._aot_autograd import runtime_wrappers

        original = getattr(runtime_wrappers, RUN_BACKWARD, None)
        if original is None:
            self.unavailable = f"backward graphs: this torch has no {RUN_BACKWARD}"
            return
        self._thread = threading.get_ident()
        calls = self._calls

        def running(compiled: Any, args: Any, *rest: Any, **named: Any) -> Any:
            graph = self._backward_of(args)
            call = calls.current
            if graph is None or not self._watching or not graph.takes(call):
                return original(compiled, args, *rest, **named)
            here = threading.get_ident() == self._thread  # on a GPU autograd has threads of its own
            before = self._before(
                graph,
                call,
                args,
                # no local, which would keep the other locals of its own frame in memory
                sys._getframe() if here else sys._current_frames().get(self._thread),
            )
            tensors = [
                weakref.ref(arg) if isinstance(arg, torch.Tensor) else lambda: None for arg in args
            ]
            result = original(compiled, args, *rest, **named)
            if before is not None:
                there = [_unless_gone(place) for place in before]
                self._after(graph, call, [tensor() for tensor in tensors], there, result)
            return result

        eager = torch._dynamo.disable(running)  # type: ignore[no-untyped-call]
        replace(runtime_wrappers, RUN_BACKWARD, eager, undo)


def _backwards_of(result: Any) -> Iterator[Any]:
    """The nodes of compiled graphs that the gradients of these outputs come to first."""
    values = result if isinstance(result, list | tuple) else (result,)
    nodes = [
        answer(value, lambda one: one.grad_fn)
        for value in values
        if isinstance(value, torch.Tensor)
    ]
    for _ in range(NODES):
        following: list[Any] = []
        for node in nodes:
            if type(node).__name__ == COMPILED_NODE:
                yield node
            elif node is not None:
                following += [beyond for beyond, _ in node.next_functions]
        nodes = following


# ---------------------------------------------------------------- one tensor


class _Place(NamedTuple):
    """Where a tensor lies now, and its storage by a weak reference."""

    memory: m.Memory
    storage: StorageWeakRef
    version: int | None

    def is_where(self, other: _Place) -> bool:
        """The same allocation at the same address: what an allocator gives out again is another
        one."""
        ours = self.memory
        theirs = other.memory
        return self.storage.cdata == other.storage.cdata and ours.address == theirs.address


def _place(tensor: Any) -> _Place | None:
    """None for what is no strided tensor, or has no storage."""
    if not isinstance(tensor, torch.Tensor):
        return None
    lies = memory_of(tensor)
    if lies is None:
        return None
    return _Place(*lies, version_of(tensor))


def _unless_gone(place: _Place | None) -> _Place | None:
    """None where nothing holds its storage any more."""
    if place is None or place.storage.expired():  # type: ignore[no-untyped-call]
        return None
    return place


_Places = list[_Place | None]  # of what goes into a graph, or comes out


class _Made:
    """Which graph made a storage: outputs of this call and of earlier ones that are still alive."""

    def __init__(self) -> None:
        self.by_storage: dict[int, tuple[StorageWeakRef, str, int]] = {}
        # storage -> source of the first input of this call that lay in it
        self.taken: dict[int, str] = {}

    def add(self, place: _Place, label: str, call: int) -> None:
        if len(self.by_storage) < REMEMBERED:
            self.by_storage[place.storage.cdata] = (place.storage, label, call)

    def maker(self, place: _Place) -> tuple[str, int] | None:
        """The output ("0/0 output 1") and the call that made it."""
        found = self.by_storage.get(place.storage.cdata)
        return found[1:] if found else None

    def prune(self, call: int) -> None:
        self.taken.clear()
        dead = [
            key
            for key, (storage, _, made) in self.by_storage.items()
            if made < call and storage.expired()  # type: ignore[no-untyped-call]
        ]
        for key in dead:
            del self.by_storage[key]


# ---------------------------------------------------------------- one graph


class _Input:
    """One input in one of the graph's runs of a call, with the fields of ``Held``."""

    def __init__(self, run: int, place: _Place) -> None:
        self.run = run
        self.place = place
        self.first = self.last = place.memory
        self.watched = 0
        self.moved: list[int] = []
        # where it moved to an output: that, the call that made it, and the one that was given it
        self.made: list[tuple[str, int, int]] = []
        self.written: list[int] = []
        self.frames: Frames = ()
        self.lies_in = ""

    def see(self, call: int, place: _Place, made: tuple[str, int] | None, frames: Frames) -> None:
        if not self.watched:
            self.frames = frames
        elif not place.is_where(self.place):
            self.moved.append(call)
            self.frames = frames
            if made is not None:
                self.made.append((*made, call))
        self.watched += 1
        self.place = place
        self.last = place.memory

    def record(self, number: Callable[[int], int], *, fixed: bool) -> m.Held:
        """Without a stack for what is fixed and stayed: a model has hundreds of them, and nobody
        asks who passed it. ``number``: the step of a call, by which "before" and "now" go."""
        held = msgspec.convert(self, m.Held, from_attributes=True)
        now = Counter(label for label, made, call in self.made if number(made) == number(call))
        before = Counter(label for label, _, _ in self.made) - now
        held = replaced(held, made_before=dict(before), made_now=dict(now))
        return replaced(held, frames=()) if fixed and not self.moved else held


@dataclass(slots=True)
class _Result:
    """An output of one run, without holding it."""

    call: int
    output: int
    storage: StorageWeakRef
    tensor: weakref.ref[torch.Tensor]
    references: int = 0

    def count(self) -> None:
        tensor = self.tensor()
        self.references = 0 if tensor is None else sys.getrefcount(tensor)

    def is_held(self, later: list[_Result]) -> bool:
        """After the call that gave ``later``. A CUDA graph keeps its outputs itself and gives out
        the same tensor in every replay: there one reference more after each call says that somebody
        collects them."""
        if self.storage.expired():  # type: ignore[no-untyped-call]
            return False
        again = [one for one in later if one.storage.cdata == self.storage.cdata]
        return not again or again[-1].references > self.references > 0


class _Graph:
    """What is known of one compiled graph, or of its backward."""

    def __init__(self, described: m.WatchedGraph, made: _Made) -> None:
        self._compiled = described
        self._made = made
        self._inputs: dict[tuple[int, int], _Input] = {}
        self._outputs = 0
        self._overlaps: dict[object, m.Overlap] = {}
        self._left_out = 0
        self.results: list[_Result] = []  # of this call and the one before
        self._held: dict[int, list[int]] = {}
        self._call, self._run = -2, 0  # the call that runs are counted in, and how many there were
        self.watched = 0

    @property
    def is_backward(self) -> bool:
        return self._compiled.backward

    def of_backward(self, args: Sequence[Any], of_autograd: Any) -> _Graph:
        """``args``: of its first run, incoming gradients last but for the states of random
        numbers."""
        metadata = getattr(of_autograd, "metadata", None)
        incoming = len(getattr(metadata, "subclass_tangent_meta", None) or ())
        places = [_place(arg) for arg in args]
        end = len(places)
        while end and places[end - 1] is None:
            end -= 1
        fixed = {one.name: one.static for one in self._compiled.inputs}
        inputs = []
        for index, place in enumerate(places):
            name = ""
            if end - incoming <= index < end:
                name = m.INCOMING
                if incoming > 1:
                    name += f" {index - end + incoming}"
            elif place is not None:
                name = self._made.taken.get(place.storage.cdata, "")
            inputs.append(m.GraphInput(name, fixed.get(name, "")))
        in_place: list[m.InPlace] = []
        traced = getattr(getattr(of_autograd, "_lazy_backward_info", None), "bw_module", None)
        if traced is not None:
            in_place += writes_of_backward(traced.graph)
        backward = replaced(
            self._compiled,
            inputs=tuple(inputs),
            in_place=tuple(in_place),
            returned_inputs=(),
            returned_outputs=None,
            returned_twice=(),
            returns=True,
            backward=True,
        )
        return _Graph(backward, self._made)

    def takes(self, call: int) -> bool:
        """Whether this run of the graph is looked at."""
        self._run = self._run + 1 if call == self._call else 0
        self._call = call
        return self._run < RUNS

    def before(self, call: int, args: Sequence[Any], frame: FrameType | None = None) -> _Places:
        """``frame``: below what called the graph."""
        self.watched += 1
        frame = frame or sys._getframe(1)
        places = [_place(arg) for arg in args]
        frames: Frames | None = None
        for index, place in enumerate(places):
            if place is None:
                continue
            seen = self._inputs.get((index, self._run))
            if seen is None:
                seen = self._inputs[index, self._run] = _Input(self._run, place)
            if frames is None and (not seen.watched or not place.is_where(seen.place)):
                frames = self._frames_above(frame)
            seen.see(call, place, self._made.maker(place), frames or ())
            if self._compiled.function.startswith(RESUMED):
                seen.lies_in = self._made.taken.get(place.storage.cdata, "")
            elif not self.is_backward:
                self._made.taken.setdefault(place.storage.cdata, self._compiled.inputs[index].name)
        return places

    def after(self, call: int, args: Sequence[Any], before: _Places, result: Any) -> dict[int, int]:
        """By how much the versions of the storages (as StorageWeakRef names them) that came in rose
        meanwhile."""
        written = {}
        for index, (arg, place) in enumerate(zip(args, before, strict=True)):
            if arg is None or place is None or place.version is None:
                continue
            version = version_of(arg)
            if version is not None and version != place.version:
                _note(self._inputs[index, self._run].written, call)
                written[place.storage.cdata] = version - place.version
        outputs = [result]
        if isinstance(result, list | tuple):
            outputs = list(result)
        self._outputs = len(outputs)
        places = [_place(value) for value in outputs]
        self._add_overlaps(
            call, [*_named("input", args, before), *_named("output", outputs, places)]
        )
        which = " backward" if self.is_backward else ""
        taken = {place.storage.cdata for place in before if place is not None}
        for index, place in enumerate(places):
            if place is None or place.storage.cdata in taken:
                continue
            self._made.add(place, f"{self._compiled.compile_id}{which} output {index}", call)
            if not which:
                tensor = weakref.ref(outputs[index])
                self.results.append(_Result(call, index, place.storage, tensor))
        return written

    def call_ended(self, call: int) -> None:
        """An output that outlives the call after its own is held, if that one ran the graph again:
        a CUDA graph keeps its outputs itself until then."""
        now = [result for result in self.results if result.call == call]
        for result in now:
            result.count()
        for result in self.results:
            if now and result.call == call - 1 and result.is_held(now):
                _note(self._held.setdefault(result.output, []), result.call)
        self.results = now

    def _add_overlaps(self, call: int, tensors: list[_Named]) -> None:
        for left, right in _meeting(tensors):
            ours = left.memory
            theirs = right.memory
            same = left.tensor is right.tensor
            offset = theirs.address - ours.address
            layouts = (ours.shape, ours.stride, theirs.shape, theirs.stride)
            key = (left.label, right.label, same, offset, layouts)
            known = self._overlaps.get(key)
            if known is not None:
                self._overlaps[key] = replaced(known, runs=known.runs + 1)
            elif len(self._overlaps) >= PAIRS:
                self._left_out += 1
            else:
                self._overlaps[key] = m.Overlap(
                    left.label, right.label, same, ours, theirs, runs=1, first_call=call
                )

    def _frames_above(self, frame: FrameType | None) -> Frames:
        """The stack that called the compiled function, its own frame left out, innermost first."""
        own = (self._compiled.file, self._compiled.first_line)
        outer = (
            above
            for above in upwards(frame)
            if not above.f_code.co_filename.startswith((IN_TORCH, __file__))
            and (above.f_code.co_filename, above.f_code.co_firstlineno) != own
        )
        return tuple(map(described, islice(outer, STACK)))

    def record(self, number: Callable[[int], int]) -> m.WatchedGraph:
        inputs = self._compiled.inputs
        held: dict[int, list[m.Held]] = {index: [] for index in range(len(inputs))}
        for index, run in sorted(self._inputs):
            seen = self._inputs[index, run]
            held[index].append(seen.record(number, fixed=bool(inputs[index].static)))
        outputs = (m.HeldOutput(at, tuple(calls)) for at, calls in sorted(self._held.items()))
        return replaced(
            self._compiled,
            inputs=tuple(replaced(inputs[index], held=tuple(held[index])) for index in held),
            outputs=self._outputs,
            overlaps=tuple(self._overlaps.values()),
            held_outputs=tuple(outputs),
            runs=self.watched,
            left_out=self._left_out,
        )


class _Named(NamedTuple):
    """An argument or a result of one run of a graph."""

    is_output: bool
    position: int
    label: str  # "input 0"
    tensor: Any
    memory: m.Memory

    @property
    def end(self) -> int:
        """The address behind its last element."""
        memory = self.memory
        extent = 1
        for length, stride in zip(memory.shape, memory.stride, strict=True):
            extent += (length - 1) * stride
        return memory.address + extent * memory.itemsize


def _named(side: str, tensors: Iterable[Any], places: _Places) -> Iterator[_Named]:
    for index, (tensor, place) in enumerate(zip(tensors, places, strict=True)):
        if place is not None:
            yield _Named(side == "output", index, f"{side} {index}", tensor, place.memory)


def _meeting(tensors: list[_Named]) -> Iterator[list[_Named]]:
    """Pairs whose ranges of addresses meet, inputs before outputs; by a sweep over the
    addresses."""
    active: list[tuple[int, _Named]] = []
    for tensor in sorted(tensors, key=lambda one: (one.memory.device, one.memory.address)):
        memory = tensor.memory
        if not memory.size_bytes or not memory.address:
            continue
        active = [
            (end, other)
            for end, other in active
            if end > memory.address and other.memory.device == memory.device
        ]
        for _, other in active:
            yield sorted((other, tensor))
        active.append((tensor.end, tensor))


# ---------------------------------------------------------------- declared buffers


class _Buffer:
    """With the fields of ``WatchedBuffer``."""

    def __init__(self, name: str, tensor: torch.Tensor, place: _Place) -> None:
        self.name = name
        self.first = place.memory
        self.watched = 0
        self.rebound: list[int] = []
        self.moved: list[int] = []
        self.made_by: Counter[str] = Counter()
        self.written_inside: list[int] = []
        self.written_outside: list[int] = []
        self.stands(tensor, place)

    def stands(self, tensor: torch.Tensor, place: _Place) -> None:
        """Under the name, now."""
        self.identity = id(tensor)
        self.place = place
        self.last = place.memory


class _Buffers:
    """What stands under the declared names before and after each call."""

    def __init__(self, declared: Buffers | None, calls: CallIndex, made: _Made) -> None:
        self.declared = declared
        self._calls = calls
        self._made = made
        self._known: dict[str, _Buffer] = {}
        # storage -> versions by which graphs advanced it in this call
        self.ran: Counter[int] = Counter()

    def records(self) -> tuple[m.WatchedBuffer, ...] | None:
        if self.declared is None:
            return None
        return tuple(
            msgspec.convert(one, m.WatchedBuffer, from_attributes=True)
            for one in self._known.values()
        )

    def before(self) -> None:
        self.ran.clear()
        for name, tensor, place in self._standing():
            if name in self._known:  # rebound between two calls: the workload's harness did it
                self._compare(self._known[name], tensor, place)
            else:
                self._known[name] = _Buffer(name, tensor, place)

    def after(self) -> None:
        for name, tensor, place in self._standing():
            if name in self._known:
                self._known[name].watched += 1
                self._compare(self._known[name], tensor, place)

    def _standing(self) -> Iterator[tuple[str, torch.Tensor, _Place]]:
        """What stands under the names now."""
        for name, tensor in (self.declared or dict)().items():
            place = _place(tensor)
            if place is not None:
                yield name, tensor, place

    def _compare(self, buffer: _Buffer, tensor: torch.Tensor, place: _Place) -> None:
        call = self._calls.current
        before = buffer.place
        rebound = id(tensor) != buffer.identity
        moved = not place.is_where(before)
        _note(buffer.rebound, call, rebound)
        _note(buffer.moved, call, moved)
        if rebound or moved:
            made = self._made.maker(place)
            if made is not None:
                buffer.made_by[made[0]] += 1
        elif place.version is not None and before.version is not None:
            advanced = place.version - before.version
            by_graphs = self.ran.get(place.storage.cdata)
            _note(buffer.written_inside, call, bool(advanced) and by_graphs is not None)
            _note(buffer.written_outside, call, advanced > (by_graphs or 0))
        buffer.stands(tensor, place)


def _note(calls: list[int], call: int, happened: bool = True) -> None:
    if happened and call not in calls:
        calls.append(call)


def _marks_left() -> int:
    """torch.compiler.cudagraph_mark_step_begin() counts down a number of torch's; reading it
    disturbs nothing."""
    trees = sys.modules.get("torch._inductor.cudagraph_trees")
    return int(getattr(getattr(trees, "MarkStepBox", None), "mark_step_counter", 0))
