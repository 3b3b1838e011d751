"""What each graph that Inductor compiles replaces, moves, allocates and saves, as its GraphLowering
and wrapper say.

Watched beside COMPILE, from three sides: ``compile_fx`` is given Dynamo's graph, which is run once
on tensors without data to count what eager mode would dispatch; ``_compile_fx_inner`` is given
AOTAutograd's forward and backward; and ``GraphLowering.codegen`` ends when kernels are generated
and buffers planned. All three have these names in torch 2.11 to 2.13.
"""

import importlib
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from msgspec.structs import replace as replaced
from torch.utils._pytree import tree_leaves

from kgprof import model as m
from kgprof.record.ground.source import Source, first_line, replace
from kgprof.record.ground.tensor_memory import OperatorWatch

MAX_GRAPHS = 500
# a buffer, whether it is written, and the bytes of it that are moved
Access = tuple[str, bool, int]

# Their results are new memory, and no kernel writes it; or the schema hides that they are views.
_LAUNCH_NOTHING = (
    "empty",
    "new_empty",
    "_unsafe_view",
    "sym_",
    "_local_scalar_dense",
    "set_",
    "resize_",
    "is_",
)
# they read no more than they give
_INDEXED = ("gather", "index", "embedding", "masked_select", "nonzero")
NO_BACKWARD = m.Skipped("no result of the graph needs a gradient")
NO_PLAN = m.Skipped("this wrapper of Inductor's plans its buffers in another way")


class GraphWatch(Source):
    """One GraphWork for each graph for which Inductor generates code while it is entered."""

    name = "work by graph"

    def __init__(self) -> None:
        self._graphs: list[m.GraphWork] = []
        # by compile id, and whether of the backward
        self._eager: dict[tuple[str, bool], m.EagerWork | m.Skipped] = {}
        self._saved: dict[str, m.SavedForBackward] = {}
        # Compile id -> of AOTAutograd's forward its operators, and by each node's name the node
        # whose memory it has.
        self._forward: dict[str, tuple[set[str], dict[str, torch.fx.Node]]] = {}
        # of the graph that is being generated
        self._begins()
        self._inside = False

    def _begins(self) -> None:
        """Another graph."""
        self.kernels: list[tuple[str, m.KernelWork, list[Access]]] = []
        # bytes of each buffer
        self._new: list[int] = []
        self._again: list[int] = []
        self._is_planned = False

    def answer(self) -> tuple[m.GraphWork, ...] | m.Skipped:
        if self._graphs or not self.unavailable:
            return tuple(self._graphs)
        return m.Skipped(self.unavailable)

    def listen(self, undo: ExitStack) -> None:
        fx = importlib.import_module("torch._inductor.compile_fx")
        lowering = importlib.import_module("torch._inductor.graph").GraphLowering
        wrapper = importlib.import_module("torch._inductor.codegen.wrapper").PythonWrapperCodegen
        outer = fx.compile_fx
        inner = fx._compile_fx_inner
        codegen = lowering.codegen
        plan = wrapper.memory_plan_reuse

        def compile_fx(model: Any, inputs: Any, *args: Any, **named: Any) -> Any:
            if not self._inside:  # it calls itself again for its settings
                name = _compile_id()
                self._eager[name, False], self._eager[name, True] = eager_work(model, inputs)
            before = self._inside
            self._inside = True
            try:
                return outer(model, inputs, *args, **named)
            finally:
                self._inside = before

        def compile_fx_inner(model: Any, *args: Any, **named: Any) -> Any:
            self._guarded(self._divided, model, named.get("is_backward", False))
            return inner(model, *args, **named)

        def generate(this: Any) -> Any:
            self._begins()
            result = codegen(this)
            # with a name it is a subgraph that is compiled to be timed
            if not getattr(this, "name", None):
                self._guarded(self._generated, this)
            return result

        def memory_plan_reuse(this: Any) -> Any:
            result = plan(this)
            self._guarded(self._plan, this.lines)
            return result

        replace(fx, "compile_fx", compile_fx, undo)
        replace(fx, "_compile_fx_inner", compile_fx_inner, undo)
        replace(lowering, "codegen", generate, undo)
        replace(wrapper, "memory_plan_reuse", memory_plan_reuse, undo)

    def _guarded(self, look: Callable[..., None], *args: Any) -> None:
        """Inside the compiler: an exception of ours would fail the workload's compilation. It is
        told instead."""
        try:
            look(*args)
        except Exception as error:  # noqa: BLE001
            self.unavailable = f"torch's graph could not be read: {type(error).__name__}: {error}"

    def _divided(self, model: Any, backward: bool) -> None:
        """AOTAutograd's partitioner copies an operator that is to be computed twice under its
        name."""
        if (graph := getattr(model, "graph", None)) is None:
            return
        calls = {node for node in graph.nodes if isinstance(node.target, torch._ops.OpOverload)}
        operators = {node.name for node in calls if _launches(node.target)}
        if not backward:
            memory_of: dict[str, torch.fx.Node] = {}
            for node in graph.nodes:
                base = (
                    node.args[0] if node.args and isinstance(node.args[0], torch.fx.Node) else node
                )
                memory_of[node.name] = (
                    memory_of.get(base.name, base)
                    if node in calls and _is_view(node.target)
                    else node
                )
            self._forward[_compile_id()] = operators, memory_of
            return
        forward, memory_of = self._forward.get(_compile_id(), (set(), {}))
        given = [
            node
            for node in graph.nodes
            if node.op == "placeholder" and not node.name.startswith("tangents")
        ]
        # Views of one tensor are one; a view of an input keeps what is there anyway.
        tensors = {memory_of.get(node.name, node) for node in given if _value(node) is not None}
        kept = [
            _tensor_bytes(value)
            for node in tensors
            if node.op != "placeholder" and (value := _value(node)) is not None
        ]
        self._saved[_compile_id()] = m.SavedForBackward(
            activations=len(kept),
            activation_bytes=sum(kept),
            inputs=len(tensors) - len(kept),
            recomputed=len(operators & forward),
            operators=len(forward),
        )

    def _plan(self, lines: Sequence[Any]) -> None:
        """Allocations as they stand after planning: each is one still, or reuses another's
        memory."""
        self._is_planned = True
        for line in lines:
            kind = type(line).__name__
            if kind == "AllocateLine":
                self._new.append(_buffer_bytes(line.node))
            # In place over an argument that is freed (``delete_old``), or over a buffer that is no
            # longer read.
            elif kind == "ReuseLine":
                self._again.append(_buffer_bytes(line.reused_as))

    def _generated(self, graph: Any) -> None:
        if len(self._graphs) >= MAX_GRAPHS:
            self.unavailable = f"more than {MAX_GRAPHS} graphs were compiled"
            return
        real_name = graph.scheduler.mutation_real_name
        outputs = {real_name.get(name, name) for name in graph.get_output_names()} | set(
            graph.mutated_inputs
        )
        needed: dict[tuple[str, bool], int] = {}
        for _, _, accesses in self.kernels:
            for buffer, written, moved in accesses:
                name = real_name.get(buffer, buffer)
                if name in (outputs if written else graph.graph_inputs):
                    needed[name, written] = max(moved, needed.get((name, written), 0))
        backward = bool(graph.is_backward)
        compile_id = _compile_id()
        known = [work.bytes_moved for _, work, _ in self.kernels if work.bytes_moved is not None]
        not_given = m.Skipped("Inductor was not given this graph by Dynamo")
        work = m.GraphWork(
            compile_id=compile_id,
            backward=backward,
            eager=self._eager.get((compile_id, backward), not_given),
            kernels=len(self.kernels),
            generated=sum(name.startswith(("triton_", "cpp_")) for name, _, _ in self.kernels),
            moved_bytes=sum(known),
            unknown=len(self.kernels) - len(known),
            needed_bytes=sum(needed.values()),
            buffers=NO_PLAN,
        )
        if self._is_planned:
            buffers = m.BufferPlan(
                allocated=len(self._new),
                allocated_bytes=sum(self._new),
                reused=len(self._again),
                reused_bytes=sum(self._again),
            )
            work = replaced(work, buffers=buffers)
        if backward and compile_id in self._saved:
            work = replaced(work, saved=self._saved[compile_id])
        self._graphs.append(work)


def _compile_id() -> str:
    return str(torch._guards.CompileContext.current_compile_id() or "")


def _value(node: torch.fx.Node) -> torch.Tensor | None:
    value = node.meta.get("val")
    return value if isinstance(value, torch.Tensor) else None


def _size(size: Any) -> int:
    """The one that there was, where it is dynamic."""
    return size if isinstance(size, int) else int(size.node.hint)


def _tensor_bytes(tensor: torch.Tensor) -> int:
    """An axis of stride 0 is one element long in memory."""
    sizes = (
        _size(size)
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
        if stride != 0
    )
    return math.prod(sizes) * tensor.dtype.itemsize


def _buffer_bytes(buffer: Any) -> int:
    graph = importlib.import_module("torch._inductor.virtualized").V.graph
    elements = graph.get_allocation_storage_size(buffer)
    hint = elements if isinstance(elements, int) else graph.sizevars.optimization_hint(elements)
    return int(hint) * int(buffer.get_dtype().itemsize)


# ---------------------------------------------------------------- what eager mode would run


def eager_work(
    model: Callable[..., Any], inputs: Sequence[Any]
) -> tuple[m.EagerWork | m.Skipped, m.EagerWork | m.Skipped]:
    """Count what ``model`` dispatches on arguments like ``inputs``, and what the backward of its
    results would. No tensor of the program is written, and none gets a gradient."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    own: dict[int, Any] = {}
    # Called, a module of FX is compiled to Python; then the caches' key of the graph is another
    # one.
    run = _WithoutData(model, own).run if isinstance(model, torch.fx.GraphModule) else model
    try:
        with _state_of_torch(), _unhooked(), FakeTensorMode(allow_non_fake_inputs=True):
            arguments = [_without_data(one) for one in inputs]
            with _Counted() as forward:
                results = run(*arguments)
            roots = [
                one
                for one in tree_leaves(results)
                if isinstance(one, torch.Tensor) and one.requires_grad
            ]
            gradients = [torch.ones_like(one) for one in roots]
            leaves = [
                one
                for one in (*arguments, *own.values())
                if isinstance(one, torch.Tensor) and one.requires_grad and one.is_leaf
            ]
            with _Counted() as backward:
                if roots and leaves:
                    torch.autograd.grad(roots, leaves, gradients, allow_unused=True)
    # whatever graph a program has; compiling it must not fail for this
    except Exception as error:  # noqa: BLE001
        why = m.Skipped(f"the graph could not be run without data: {first_line(error)[:200]}")
        return why, why
    works = [
        m.EagerWork(operators=one.operators, bytes_moved=one.bytes) for one in (forward, backward)
    ]
    return works[0], works[1] if roots else NO_BACKWARD


def _unhooked() -> AbstractContextManager[None]:
    """Keep what is saved from hooks of the program: those of checkpointing count it. Where there
    are none, none are set, for gradients of torch.func refuse any."""
    if torch._C._autograd._top_saved_tensors_default_hooks(False) is None:
        return nullcontext()
    return torch.autograd.graph.saved_tensors_hooks(_as_it_is, _as_it_is)


def _as_it_is(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


@contextmanager
def _state_of_torch() -> Iterator[None]:
    """Set back what a graph sets for a part of itself and leaves set where it raises: levels of
    torch.func, the mode of gradients, autocast."""
    levels = torch._C._functorch.get_dynamic_layer_stack_depth()
    devices = [each for each in ("cpu", "cuda") if torch.amp.is_autocast_available(each)]
    autocast = [
        (each, torch.is_autocast_enabled(each), torch.get_autocast_dtype(each)) for each in devices
    ]
    gradients = torch.is_grad_enabled()
    regions = torch.autocast_increment_nesting()
    try:
        yield
    finally:
        torch._C._functorch.pop_dynamic_layer_stack_and_undo_to_depth(levels)
        torch.set_grad_enabled(gradients)
        for device, enabled, dtype in autocast:
            torch.set_autocast_enabled(device, enabled)
            torch.set_autocast_dtype(device, dtype)
        while torch.autocast_decrement_nesting() >= regions:
            continue


def _without_data(value: Any) -> Any:
    if isinstance(value, torch.SymInt):
        return _size(value)
    if not isinstance(value, torch.Tensor):
        return value
    shape = [_size(one) for one in value.shape]
    stride = [_size(one) for one in value.stride()]
    made = torch.empty_strided(shape, stride, dtype=value.dtype, device=value.device)
    return made.requires_grad_(value.requires_grad)


class _WithoutData(torch.fx.Interpreter):
    """Runs a graph with stand-ins for the tensors that it owns: a compiled optimizer's graph owns
    parameters and state, and writes them in place. ``own``: these stand-ins, by the tensor's id."""

    def __init__(self, model: torch.fx.GraphModule, own: dict[int, Any]) -> None:
        super().__init__(model)
        self._own = own

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        return self._stand_in(super().get_attr(target, args, kwargs))

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        module = self.fetch_attr(target)
        tensors = (*module.named_parameters(), *module.named_buffers())
        own = {name: self._stand_in(tensor) for name, tensor in tensors}
        return torch.func.functional_call(module, own, args, kwargs)

    def _stand_in(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in self._own:
            self._own[id(value)] = _without_data(value)
        return self._own[id(value)]


class _Counted(OperatorWatch):
    """Counts operators and the bytes that they move.

    Raises RuntimeError before an operator writes a tensor of the program: FakeTensorMode lets it
    where all of its operands are such.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operators = self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if _writes(func) and not any(_is_fake(one) for one in tree_leaves((args, kwargs))):
            raise RuntimeError(f"{func} would write a tensor of the program")
        result = func(*args, **(kwargs or {}))
        if _launches(func):
            self.operators += 1
            self.bytes += sum(_moved(func, (args, kwargs), result))
        return result


def _launches(operator: Any) -> bool:
    """Whether it writes memory: no view, no allocation, no question about a tensor."""
    schema = operator._schema
    name = operator._schema.name.rpartition("::")[2]
    given = [one for one in schema.returns if "Tensor" in str(one.type)]
    writes = given or _writes(operator)
    return not _is_view(operator) and bool(writes) and not name.startswith(_LAUNCH_NOTHING)


def _writes(operator: Any) -> bool:
    """Whether it writes one of its arguments."""
    arguments = operator._schema.arguments
    return any(one.alias_info is not None and one.alias_info.is_write for one in arguments)


def _is_fake(value: Any) -> bool:
    from torch._subclasses.fake_tensor import FakeTensor

    return isinstance(value, FakeTensor)


def _is_view(operator: Any) -> bool:
    given = [one for one in operator._schema.returns if "Tensor" in str(one.type)]
    return bool(given) and all(
        one.alias_info is not None and not one.alias_info.is_write for one in given
    )


def _moved(operator: Any, arguments: Any, result: Any) -> Iterator[int]:
    """Operands and results, each once; of what is looked up by index no more than comes out of
    it."""
    name = operator._schema.name
    taken, given = (
        [one for one in tree_leaves(side) if isinstance(one, torch.Tensor)]
        for side in (arguments, result)
    )
    taken = list({id(one): one for one in taken}.values())
    if name.endswith(("copy_", "fill_", "zero_")):  # what stood there before is not read
        taken = taken[1:]
    out = sum(map(_tensor_bytes, given))
    if "index_put" in name or "scatter" in name:  # only what the indices name is written
        taken, out = taken[1:], 2 * sum(map(_tensor_bytes, taken[-1:]))
    at_most = out if any(word in name for word in _INDEXED) else math.inf
    yield from (int(min(_tensor_bytes(one), at_most)) for one in taken)
    yield out
