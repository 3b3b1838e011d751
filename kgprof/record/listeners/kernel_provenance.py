"""Which source lines each generated kernel came from, as Inductor itself wrote it down while it
fused them.

    Inductor's log ──KernelProvenance──► one KernelOrigin for each call of a kernel
    set_kernel_post_grad_provenance_tracing ──KernelWatch──► its KernelWork

Inductor keeps this with ``trace.provenance_tracking_level`` 1 (INDUCTOR_PROVENANCE=1) and emits it
as an artifact of the structured trace: "kernel name:number of the call" -> stacks, one for each
operation that went into the kernel. Its names are the trace's names. Watched in the first process
of a run, beside COMPILE's listeners.

And how many bytes and operations each call takes. Inductor calls one function for every kernel that
it writes a call of, to note where it came from; that function is watched here, because at that
moment the nodes with their index expressions are still at hand. The count is our own: Inductor's
estimates charge a gather for the whole table.
"""

import importlib
import json
import logging
import math
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any

import torch
from msgspec.structs import replace as replaced

from kgprof import model as m
from kgprof.reading.files import json_object
from kgprof.reading.project import TOOLS, ProjectFiles
from kgprof.reading.structured_trace import artifact_name
from kgprof.record.ground.python_stack import innermost_of, line_of
from kgprof.record.ground.source import LogListener, Source, aside, preceded, replace, when_imported
from kgprof.record.listeners.graph_work import Access, GraphWatch

TRACE_LOGGER = "torch.__trace"
ARTIFACT = "inductor_provenance_tracking_kernel_stack_traces"
# "hit", "miss", ...; it comes after the graph's ARTIFACT, with the graph's key
CACHE_ARTIFACT = "fx_graph_cache_"
WANTED = frozenset(
    (ARTIFACT, f"{CACHE_ARTIFACT}hit", f"{CACHE_ARTIFACT}miss", f"{CACHE_ARTIFACT}bypass")
)
COMPILER = "torch._inductor.compile_fx"
HANDLE = "_inductor_kernel_provenance_debug_handle"  # counts what Inductor noted
LEVEL = "provenance_tracking_level"
MAX_ORIGINS = 5_000  # calls of kernels; a graph of the evaluator has 40
MAX_LINES = 64  # of one kernel
WATCHED = "set_kernel_post_grad_provenance_tracing"
# they have imported it by name
USERS = ("torch._inductor.codegen.triton", "torch._inductor.codegen.cpp")
# Inductor's node of aten.scatter_ and its kin where it generates no code for them
SCATTER = "ScatterFallback"
# Other operators of libraries whose bytes depend on the indices that they are given.
INDEXED = (
    "scatter",
    "gather",
    "index",
    "embedding",
    "masked",
    "nonzero",
    "searchsorted",
    "bucketize",
)

_FRAME = re.compile(
    r'^ *File "(?P<file>.*)", line (?P<line>\d+), in (?P<function>.*)$', re.MULTILINE
)

# "kernel name:number of the call", as in Inductor's own artifact
Note = Callable[[str, m.KernelWork], None]
Origins = m.KernelOrigins | m.Skipped


class KernelProvenance(Source):
    """One KernelOrigin for each call of a kernel in the code that was generated while it
    listened."""

    name = "kernel provenance"

    def __init__(self, project: ProjectFiles) -> None:
        self.left_out = 0
        self._project = project
        self.origins: list[m.KernelOrigin] = []
        self._work: dict[str, m.KernelWork] = {}  # of the compilation that is going on
        # compile id -> the line that first called for it
        self._ways_in: dict[str, m.SourceLine | None] = {}
        self._without_key = 0  # from here on ``origins`` are of a graph whose key has not come
        self._keys = {""}
        self._graphs = GraphWatch()

    def answer(self) -> Origins:
        """For the Recording; what is called outside of compiled code comes beside it
        (EagerCalls.beside)."""
        if not self.origins:
            return m.Skipped(self.unavailable or "Inductor generated no code")
        return m.KernelOrigins(
            origins=tuple(self.origins), left_out=self.left_out, graphs=self._graphs.answer()
        )

    def listen(self, undo: ExitStack) -> None:
        from torch._inductor import config

        before = config.trace.provenance_tracking_level
        LogListener(self._take, WANTED).stand_first(logging.getLogger(TRACE_LOGGER), undo)
        undo.callback(setattr, config.trace, "provenance_tracking_level", before)
        config.trace.provenance_tracking_level = max(1, before)
        inductor = undo.enter_context(ExitStack())

        def imported() -> None:
            kernels = KernelWatch(self._work.__setitem__, self._graphs)
            for source in (CachedAsEver(), self._graphs, kernels, FallbackProvenance()):
                inductor.enter_context(source)

        when_imported(COMPILER, imported, undo)
        wrapper: Any = torch._TorchCompileInductorWrapper
        # When the program first asks for Inductor: else importing it would be in the seconds of
        # a compilation.
        replace(wrapper, "__init__", preceded(_import_inductor, wrapper.__init__), undo)

    @aside
    def _take(self, record: logging.LogRecord) -> None:
        metadata = getattr(record, "metadata", None) or {}
        name = artifact_name(metadata)
        payload = getattr(record, "payload", None) or ""
        if name.startswith(CACHE_ARTIFACT):
            key = str(json_object(payload).get("key") or "")
            # else the trace cannot tell it from the one before, whose code it has
            if key not in self._keys:
                self._keys.add(key)
                since = self.origins[self._without_key :]
                self.origins[self._without_key :] = [
                    replaced(origin, graph=key) for origin in since
                ]
            self._without_key = len(self.origins)
        if name != ARTIFACT:
            return
        self._without_key = len(self.origins)
        compile_id = f"{metadata.get('frame_id')}/{metadata.get('frame_compile_id')}"
        work = dict(self._work)
        self._work.clear()
        if compile_id not in self._ways_in:
            self._ways_in[compile_id] = line_of(innermost_of(self._project, sys._getframe(1)))
        for origin in origins(compile_id, payload, self._project, work, self._ways_in[compile_id]):
            if len(self.origins) < MAX_ORIGINS:
                self.origins.append(origin)
            else:
                self.left_out += 1


def _import_inductor() -> None:
    with suppress(ImportError):  # compiling raises it too
        importlib.import_module(COMPILER)


def origins(
    compile_id: str,
    payload: str,
    project: ProjectFiles,
    work: Mapping[str, m.KernelWork],
    way_in: m.SourceLine | None = None,
) -> Iterator[m.KernelOrigin]:
    """The artifact's entries in the order of their calls; a line is the innermost one of the
    project's in a stack, and ``way_in`` where no stack has one: a compiled module of torch's own
    has none inside.

    Without those that ``work``, where there is any, does not have: torch leaves in it the kernels
    of another backward that was compiled within the same ``backward()``.
    """
    for key, stacks in json.loads(payload or "{}").items():
        if work and key not in work:
            continue
        kernel, _, number = key.rpartition(":")
        lines = dict.fromkeys(innermost(stack, project) for stack in stacks)
        inside = tuple(filter(None, lines))[:MAX_LINES]
        yield m.KernelOrigin(
            compile_id=compile_id,
            kernel=kernel or key,
            number=int(number) if kernel and number.isdigit() else 0,
            lines=inside or tuple(filter(None, (way_in,))),
            work=work.get(key),
        )


def innermost(stack: str, project: ProjectFiles) -> m.SourceLine | None:
    """The last frame of a stack, as Python prints it, that lies in the project; else in a library
    that is not torch."""
    of_a_library = None
    for frame in reversed(list(_FRAME.finditer(stack))):
        file = frame["file"]
        line = m.SourceLine(file, int(frame["line"]), frame["function"])
        if project.holds(file):
            return line
        if of_a_library is None and project.package(file)[0] not in TOOLS:
            of_a_library = line
    return of_a_library


class CachedAsEver(Source):
    """While entered, the caches hold what they would hold without provenance, under the same keys.

    torch 2.13 puts the level into the key of a graph and the stacks into what is kept of it. So
    another process, which does not track it, would compile the graph again.
    """

    def listen(self, undo: ExitStack) -> None:
        details = importlib.import_module("torch._inductor.codecache").FxGraphHashDetails
        graph = importlib.import_module("torch._inductor.output_code").CompiledFxGraph
        key_of = details.__init__
        prepare = graph.prepare_for_serialization

        def keyed(this: Any, *args: Any, **named: Any) -> None:
            key_of(this, *args, **named)
            if hasattr(this, LEVEL):
                setattr(this, LEVEL, 0)

        def prepared(this: Any) -> Any:
            for name in vars(this):
                if name.startswith("inductor_provenance_"):
                    setattr(this, name, None)
            return prepare(this)

        replace(details, "__init__", keyed, undo)
        replace(graph, "prepare_for_serialization", prepared, undo)


class FallbackProvenance(Source):
    """While entered, no call of an ATen operator in generated code is left without its origin.

    Inductor notes where a kernel came from in the ``codegen`` of its nodes, and those of scatters
    and indexed writes in place have one of their own that does not. Each call for which nothing was
    noted is noted here, by Inductor's own function, so that it stands in the same artifact.
    """

    def listen(self, undo: ExitStack) -> None:
        debug = importlib.import_module("torch._inductor.debug")
        scheduler = importlib.import_module("torch._inductor.scheduler").Scheduler
        original = scheduler.codegen_extern_call
        getattr(debug, HANDLE)  # raises before anything is replaced, where this torch has none

        def watched(this: Any, scheduler_node: Any) -> Any:
            before = getattr(debug, HANDLE)
            result = original(this, scheduler_node)
            node = getattr(scheduler_node, "node", None)
            name = getattr(node, "python_kernel_name", None)
            if (
                getattr(debug, HANDLE) == before
                and isinstance(name, str)
                and name.startswith(("aten.", "torch.ops."))
            ):
                debug.set_kernel_post_grad_provenance_tracing(node, name, is_extern=True)
            return result

        replace(scheduler, "codegen_extern_call", watched, undo)


# ---------------------------------------------------------------- bytes and operations


class KernelWatch(Source):
    """While entered, ``note`` gets the work of every kernel call that Inductor generates."""

    def __init__(self, note: Note, graphs: GraphWatch) -> None:
        self._note = note
        self._graphs = graphs

    def listen(self, undo: ExitStack) -> None:
        debug = importlib.import_module("torch._inductor.debug")
        users = [importlib.import_module(name) for name in USERS]
        original = getattr(debug, WATCHED)

        def watched(nodes: Any, kernel_name: str, is_extern: bool = False) -> Any:
            number = original(nodes, kernel_name, is_extern)
            if number is not None:
                work = work_of(nodes, kernel_name)
                self._note(f"{kernel_name}:{number}", work)
                moved = accesses(nodes) if not work.unknown else []
                self._graphs.kernels.append((kernel_name, work, moved))
            return number

        for module in (debug, *users):
            if getattr(module, WATCHED, None) is original:
                replace(module, WATCHED, watched, undo)


def work_of(nodes: Any, kernel_name: str) -> m.KernelWork:
    """The work of one call. ``unknown`` says what this torch's nodes do not tell; compiling never
    fails for it."""
    try:
        if isinstance(nodes, Sequence):
            return _of_generated(_nodes(nodes))
        return _of_library(nodes, kernel_name)
    # a node of any kind, in the middle of the workload's own compilation
    except Exception as error:  # noqa: BLE001
        why = f"{type(error).__name__}: {error}"
        return m.KernelWork(unknown=f"Inductor's nodes could not be read: {why}")


# ---------------------------------------------------------------- kernels that Inductor generated


def _of_generated(nodes: Sequence[Any]) -> m.KernelWork:
    bytes_moved = sum(moved for _, _, moved in _accesses(nodes))
    flops = 0
    dtype = ""
    for node in nodes:
        estimated = node.estimate_flops()
        if estimated:
            flops += estimated
            dtype = dtype or _dtype(node.node)
    return m.KernelWork(bytes_moved=bytes_moved, flops=flops or None, dtype=dtype)


def _nodes(scheduled: Sequence[Any]) -> list[Any]:
    """``scheduled``: scheduler nodes, and markers between the loops of a reduction."""
    groups = (group for group in scheduled if hasattr(group, "get_nodes"))
    return [node for group in groups for node in group.get_nodes()]


def accesses(nodes: Any) -> list[Access]:
    """What one call reads and writes; of a scatter that is left to ATen nothing, because its
    buffers are in part."""
    if isinstance(nodes, Sequence):
        return list(_accesses(_nodes(nodes)))
    if type(nodes).__name__ == SCATTER:
        return []
    reads = _tensors(nodes.inputs)
    tensors = (*reads, *_results(nodes))
    return [
        (tensor.get_name(), place >= len(reads), _bytes_of_tensor(tensor))
        for place, tensor in enumerate(tensors)
    ]


def _accesses(nodes: Sequence[Any]) -> Iterator[Access]:
    """The bytes of each buffer that comes from outside or is left behind; what lives inside the
    kernel moves none."""
    own = {node.get_name() for node in nodes}
    read: dict[str, set[Any]] = {}
    written: dict[str, set[Any]] = {}
    for node in nodes:
        # What a scatter writes into is among its reads, as a whole; it is there for the order of
        # the kernels.
        targets = {name for buffer in node.get_outputs() for name in buffer.get_mutations()}
        for access in node.read_writes.reads:
            if not (_is_whole(access) and access.name in targets):
                _add(read, access)
        for access in node.read_writes.writes:
            _add(written, access)
    for name in read:
        if name not in written:
            yield name, False, _bytes(name, read[name])
    for name, writes in written.items():
        buffer = nodes[0].scheduler.name_to_buf[name]
        if buffer.get_mutations() or any(user.node.get_name() not in own for user in buffer.users):
            moved = _bytes(name, writes)
            if any(getattr(access, "mode", None) for access in writes):
                moved *= 2  # atomic_add reads as well
            yield name, True, moved


def _add(by_buffer: dict[str, set[Any]], access: Any) -> None:
    """The same access twice is one: the second finds its element in a register or a cache."""
    if type(access).__name__ != "WeakDep":  # an order between two kernels, no access
        by_buffer.setdefault(access.name, set()).add(access)


def _is_whole(access: Any) -> bool:
    return type(access).__name__ == "StarDep"


def _bytes(name: str, accesses: Collection[Any]) -> int:
    """Of the buffer ``name`` what a kernel with these accesses moves: no more than the whole of
    it."""
    graph = _graph()
    elements = _hint(graph.get_numel(name))
    if not any(map(_is_whole, accesses)):
        elements = min(elements, sum(map(_elements, accesses)))
    return int(graph.get_dtype(name).itemsize * elements)


def _elements(access: Any) -> int:
    if access.is_indirect():
        return math.prod(map(_hint, access.size))
    return _hint(access.get_numel())


# ---------------------------------------------------------------- calls of libraries


def _of_library(kernel: Any, kernel_name: str) -> m.KernelWork:
    """Its operands and its result, each once."""
    if type(kernel).__name__ == SCATTER:
        return _of_scatter(kernel)
    if any(word in kernel_name for word in INDEXED):
        return m.KernelWork(unknown="the bytes it moves depend on its indices")
    node = _graph().scheduler.name_to_node.get(kernel.get_operation_name())
    flops = (node is not None and node.estimate_flops()) or None
    results = _results(kernel)
    if not results:
        return m.KernelWork(flops=flops, unknown="it has no single result of a known shape")
    bytes_moved = sum(map(_bytes_of_tensor, (*_tensors(kernel.inputs), *results)))
    dtype = (flops and _dtype(kernel)) or ""
    return m.KernelWork(bytes_moved=bytes_moved, flops=flops, dtype=dtype)


def _of_scatter(kernel: Any) -> m.KernelWork:
    """As a generated one is counted: where the indices point does not matter, each of them is one
    element written.

    An element is read first where the new value depends on it.
    """
    target, index, *sources = _tensors(kernel.inputs)
    elements = math.prod(map(_hint, index.get_output_spec().size))
    moved = elements * target.get_output_spec().dtype.itemsize
    if kernel.kwargs.get("reduce") is not None or "scatter_add" in str(kernel.op_overload):
        moved *= 2
    moved += _bytes_of_tensor(index)
    for source in sources:
        # Only the indexed part of a larger source counts.
        part = elements * source.get_output_spec().dtype.itemsize
        moved += min(_bytes_of_tensor(source), part)
    return m.KernelWork(bytes_moved=moved)


def _results(kernel: Any) -> list[Any]:
    """One tensor, or those that are unpacked from what it returns, as attention's and their
    statistics."""
    return _tensors([kernel]) or _tensors(getattr(kernel, "outputs", None) or ())


def _tensors(nodes: Iterable[Any]) -> list[Any]:
    """Those of them, and of the lists among them, that have a shape."""
    tensors: list[Any] = []
    for node in nodes:
        if isinstance(node, list | tuple):
            tensors += _tensors(node)
        elif hasattr(node.maybe_get_output_spec(), "stride"):
            tensors.append(node)
    return tensors


def _bytes_of_tensor(tensor: Any) -> int:
    """An axis of stride 0 (a bias that is added to every row) is one element long in memory."""
    layout = tensor.get_output_spec()
    moved = layout.dtype.itemsize
    for size, stride in zip(layout.size, layout.stride, strict=True):
        if stride != 0:
            moved *= _hint(size)
    return int(moved)


# ---------------------------------------------------------------- both


def _dtype(node: Any) -> str:
    operands = [one.get_output_spec().dtype for one in _tensors(getattr(node, "inputs", ()))]
    # its result is of another type
    if any(dtype.is_floating_point and dtype.itemsize == 1 for dtype in operands):
        return m.FLOAT8
    name = str(node.get_dtype()).removeprefix("torch.")
    if name == "float32" and torch.get_float32_matmul_precision() != "highest":
        return "tf32"
    return name


def _graph() -> Any:
    return sys.modules["torch._inductor.virtualized"].V.graph


def _hint(size: Any) -> int:
    """The size that was there when it was compiled, where it is dynamic."""
    if isinstance(size, int):
        return size
    return int(_graph().sizevars.optimization_hint(size))
