"""What the tensor records have in common for their collectors: names, places, and whether two
tensors share memory."""

import re
from functools import lru_cache
from types import SimpleNamespace

import numpy as np

from kgprof import model as m
from kgprof.collectors.guard_text import of_array
from kgprof.reading.evidence import Evidence, RunEvidence
from kgprof.reading.source_text import SourceText, is_resumed, user_function
from kgprof.reading.structured_trace import compile_id

# of numpy's exact test, which is exponential at worst; beyond it the answer is "unknown"
MAX_WORK = 100_000
MAX_OFFSETS = 1_000_000  # elements whose offsets are written out to see whether two fall together

_LOCAL = re.compile(r"L\['(\w+)'\]")
_LAST = re.compile(r"(?:\['([^']+)'\]|\.(\w+)|\[(\d+)\])$")
_MODULE_DICTS = re.compile(r"\._(?:buffers|parameters|modules)\['([^']+)'\]")
STATIC_INDICES = re.compile(r"\bstatic_input_indices=\[([\d,\s]*)\]")
_OUTPUT_TYPE = re.compile(r"output_type=<OutputType\.(\w+)")
METADATA = "aot_forward_graph_fw_metadata"


class RunTensors(m.Model, kw_only=False):
    """One run whose MEMORY pass has tensor records."""

    run: RunEvidence
    tensors: m.TensorRecords
    steady_from: int

    @property
    def key(self) -> m.RunKey:
        return self.run.key

    @property
    def source(self) -> SourceText:
        return self.run.source

    @property
    def of_script(self) -> bool:
        """Where nobody said which tensors persist, and a step may be a call of one block of a
        model."""
        return self.run.record.script is not None

    @property
    def graphs(self) -> tuple[m.WatchedGraph, ...]:
        """With the backwards, behind all others."""
        return (*self.tensors.graphs, *self.tensors.backwards)

    def named(self, graph: m.WatchedGraph) -> str:
        """The compiled function, or its backward; a library's with the package."""
        place = self.source.definition(graph.file, graph.first_line, graph.function)
        name = place.function
        if not self.source.project.holds(graph.file):
            name += f" in {self.source.package_line(place)}"
        if graph.backward:
            name += "'s backward"
        return name

    @property
    def keeps_results(self) -> bool:
        """Whether what a graph gives out was still there when its next call had ended."""
        return any(
            self.steady(held.calls) for graph in self.tensors.graphs for held in graph.held_outputs
        )

    def steady(self, calls: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(call for call in calls if call >= self.steady_from)

    def definition(self, graph: m.WatchedGraph) -> m.Location | None:
        """The ``def`` of the compiled function; for a library's the innermost line of the project
        that called it."""
        if self.source.project.holds(graph.file):
            return self.source.definition(graph.file, graph.first_line, graph.function)
        stacks = (held.frames for one in graph.inputs for held in one.held)
        return self.innermost(next(filter(None, stacks), ()))

    def innermost(self, frames: tuple[m.Frame, ...]) -> m.Location | None:
        """The project's line nearest to what happened (these stacks are innermost first)."""
        for frame in frames:
            if self.source.project.holds(frame.file):
                return self.source.at(frame.file, frame.line, frame.function)
        return None

    def _function_at(self, frame: m.Frame) -> str:
        return self.source.at(frame.file, frame.line, user_function(frame.function)).function

    def passing(self, graph: m.WatchedGraph, name: str, held: m.Held) -> tuple[m.Location, ...]:
        """The line that passes a tensor to a graph, first: the call of the compiled function; then
        what binds the name of one that is captured. Where kgprof itself makes the call, these come
        first, else the def."""
        frames = held.frames
        # the function itself stands above what goes on after its own break
        if is_resumed(graph.function):
            own = self.source.definition(graph.file, graph.first_line, graph.function)
            frames = tuple(
                f for f in frames if f.file != graph.file or self._function_at(f) != own.function
            )
        caller = self.innermost(frames)
        found = [caller]
        if not self.is_argument(graph, name):
            bound = self.source.rebound(last_name(name))
            found += [place for place in bound if place != caller]
        lines = tuple(filter(None, found))
        return lines or tuple(filter(None, (self.definition(graph),)))

    def is_users(self, graph: m.WatchedGraph, name: str) -> bool:
        """Whether the user gave it: what goes on after a graph break takes the locals of before as
        its arguments, also one that has the name of an argument, and what lay on Python's stack."""
        if (on_stack := _LOCAL.match(name)) is not None and on_stack[1].startswith(m.ON_STACK):
            return False
        local = _LOCAL.fullmatch(name)
        if local is None or not is_resumed(graph.function):
            return True
        kept = self.source.kept_arguments(graph.file, graph.first_line, graph.function)
        return local[1] in kept

    def origin(self, graph: m.WatchedGraph, tensor: m.GraphInput) -> str:
        """The source of what the user gave, where this input is that or lies in it; empty for a
        value of the function's own, made before a graph break and taken up behind it."""
        if not is_resumed(graph.function):
            return tensor.name
        found = next((held.lies_in for held in tensor.held if held.lies_in), "")
        # a name of another function's, which took the same tensor before, says nothing here
        if found and self.giver(graph, found)[1] is not None:
            return found
        made = any(
            held.made_now and sum(held.made_now.values()) >= len(held.moved) for held in tensor.held
        )
        if made or not self.is_users(graph, tensor.name):
            return ""
        return tensor.name

    def giver(self, graph: m.WatchedGraph, name: str) -> tuple[m.WatchedGraph, m.GraphInput | None]:
        """The graph of the same function that takes the input of this name before any break."""
        function = user_function(graph.function)
        for one in (graph, *self.tensors.graphs):
            if one.file == graph.file and user_function(one.function) == function:
                for tensor in one.inputs:
                    if tensor.name == name:
                        return one, tensor
        return graph, None

    def is_argument(self, graph: m.WatchedGraph, name: str) -> bool:
        """Given by the caller, as it is or inside a container."""
        local = _LOCAL.match(name)
        if local is None or local[1] not in graph.arguments:
            return False
        return "." not in name[local.end() :]

    def intent(self, graph: m.WatchedGraph) -> str:
        """What AOTAutograd decided at compile time, before anything ran; empty where the backend
        has none."""
        compiled = self.run.compiler
        if graph.backward or compiled is None:
            return ""
        for record in compiled.artifacts(METADATA):
            if compile_id(record.metadata) == graph.compile_id:
                text = record.payload or ""
                fixed = STATIC_INDICES.search(text)
                types = ", ".join(_OUTPUT_TYPE.findall(text)) or "none"
                at_fixed = "none"
                if fixed and fixed[1]:
                    at_fixed = " ".join(fixed[1].split())
                return f"AOTAutograd: outputs are {types}; inputs at fixed addresses: {at_fixed}"
        return ""


def run_tensors(evidence: Evidence) -> tuple[RunTensors, ...]:
    """Every run whose MEMORY pass watched tensors."""
    return tuple(
        RunTensors(run, memory.tensors, memory.steady_from)
        for run in evidence.runs
        if isinstance(memory := run.record.memory, m.MemoryPass)
        and isinstance(memory.tensors, m.TensorRecords)
    )


# ---------------------------------------------------------------- names


def said(source: str) -> str:
    """Dynamo's source as the program has it: ``L['self']._buffers['h']`` is ``self.h``."""
    text = _MODULE_DICTS.sub(r".\1", of_array(source))
    return re.sub(r"^[LG]\['(\w+)'\]", r"\1", text)


def last_name(source: str) -> str:
    """The attribute, key or variable that holds the tensor."""
    found = _LAST.search(of_array(source))
    if found is None:
        return source
    return next(filter(None, found.groups()), "")


def at(position: str) -> tuple[str, int]:
    """("input", 3) of "input 3"."""
    kind, _, index = position.partition(" ")
    return kind, int(index)


def returns(graph: m.WatchedGraph, position: str) -> bool:
    """Whether the function returns an output; one that it assigns is no result. A Recording may not
    know."""
    known = graph.returned_outputs
    return known is None or at(position)[1] in known


def is_gradient(name: str) -> bool:
    """A gradient is new memory in each step by torch's own default (zero_grad sets it to None)."""
    return name.endswith(".grad")


def is_written(graph: m.WatchedGraph, index: int) -> bool:
    """Whether the graph writes to an input: an operator in it does, or its version rose. Views of
    one storage share a version, so where an operator is known to write to another one of them, that
    is what it rose for."""
    if any(write.input == index for write in graph.in_place):
        return True
    held = graph.inputs[index].held
    storages = {one.last.storage for one in held}
    others = {
        one.last.storage for write in graph.in_place for one in graph.inputs[write.input].held
    }
    return any(one.written for one in held) and not storages & others


def writes_what_moves(graph: m.WatchedGraph) -> bool:
    """Whether the graph writes to an input at no fixed address, which no other graph made: torch
    makes no CUDA graph of it then."""
    return any(
        is_written(graph, index) and not one.static and not any(held.made_now for held in one.held)
        for index, one in enumerate(graph.inputs)
    )


# ---------------------------------------------------------------- memory


def _as_numpy(memory: m.Memory) -> np.ndarray:
    """Memory as numpy describes it. Nothing is read from the address, so it may be a GPU's."""
    described = {
        "version": 3,
        "data": (memory.address, False),
        "shape": memory.shape,
        "strides": tuple(stride * memory.itemsize for stride in memory.stride),
        "typestr": f"|V{memory.itemsize}",
    }
    return np.asarray(SimpleNamespace(__array_interface__=described))


@lru_cache(maxsize=4096)
def share_an_element(one: m.Memory, other: m.Memory) -> bool | None:
    """Exactly, over strided ranges; None where it is too hard to tell."""
    if one.device != other.device:
        return False
    try:
        arrays = _as_numpy(one), _as_numpy(other)
        # any number is allowed
        return bool(np.shares_memory(*arrays, max_work=MAX_WORK))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return None


def overlaps_itself(memory: m.Memory) -> bool | None:
    """Whether two elements of one tensor lie at one place; None where it is too hard to tell."""
    steps = sorted(
        (stride, n) for n, stride in zip(memory.shape, memory.stride, strict=True) if n > 1
    )
    if 0 in memory.shape:
        return False
    if steps and steps[0][0] == 0:
        return True
    extent = 0
    for stride, n in steps:
        if stride <= extent:
            break
        extent += stride * (n - 1)
    else:
        return False
    if memory.size_bytes // memory.itemsize > MAX_OFFSETS:
        return None
    offsets = np.zeros(1, dtype=np.int64)
    for n, stride in zip(memory.shape, memory.stride, strict=True):
        offsets = np.add.outer(offsets, np.arange(n) * stride).ravel()
    return len(np.unique(offsets)) != len(offsets)


def relation(overlap: m.Overlap) -> str:
    """ "the same tensor", "a view of it", "overlapping memory", "unknown", or empty where they
    share no element."""
    ours = overlap.left_memory
    theirs = overlap.right_memory
    if overlap.same_object:
        return "the same tensor"
    shared = share_an_element(ours, theirs)
    if shared is None:
        return "unknown"
    if not shared:
        return ""
    if ours.storage == theirs.storage:
        return "a view of it"
    return "overlapping memory"
