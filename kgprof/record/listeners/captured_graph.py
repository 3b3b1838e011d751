"""What Dynamo's graph says before a backend has seen it: what it takes and returns, and which
operators write."""

from __future__ import annotations

import inspect
import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from kgprof import model as m
from kgprof.record.ground.tensor_memory import storage_id
from kgprof.record.listeners.graph_hook import asks_for_cuda_graphs, is_made, name_of
from kgprof.record.listeners.graph_lines import frames_of
from kgprof.record.listeners.installed_graphs import compile_id_of

LEAVES = 1024  # tensors that are looked at in what a function returns

_AUGMENTED = frozenset(
    getattr(operator, f"i{name}")
    for name in (
        "add",
        "sub",
        "mul",
        "truediv",
        "floordiv",
        "mod",
        "pow",
        "matmul",
        "lshift",
        "rshift",
    )
) | {operator.iand, operator.ior, operator.ixor}
# Normalisation in training writes its second and third argument, which no name tells.
_RUNNING_STATISTICS = ("batch_norm", "instance_norm")
_IN_TRAINING = 5

# How VariableTracker names what a container holds, in torch 2.11 to 2.13.
_CONTENTS = ("items", "_base_vt", "_tuple_vt", "_dict_vt", "_list_vt")

# Dynamo's words for a tensor whose address the backend may rely on.
STATIC_INPUT = "_dynamo_static_input_type"


def captured(output: Any, returned: Iterable[Returned]) -> m.WatchedGraph:
    """Describe a graph as far as it is known before it runs. ``output`` is Dynamo's
    OutputGraph; ``returned`` what ``returned_tensors`` gave of the same function."""
    # the backend gets a copy, whose nodes have forgotten their sources
    graph: torch.fx.Graph = output.graph
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    reason = getattr(output, "compile_subgraph_reason", None)
    leaves = list(returned)
    seen = Counter(leaf.identity for leaf in leaves)

    def static(node: torch.fx.Node) -> str:
        if not (node.meta.get("tensor_dict") or {}).get(STATIC_INPUT):
            return ""
        return (
            "parameter"
            if ".grad" not in name_of(node) and "_parameters[" in name_of(node)
            else "fixed"
        )

    code = output.root_tx.f_code
    stars = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return m.WatchedGraph(
        compile_id=compile_id_of(output),
        function=code.co_name,
        file=code.co_filename,
        first_line=code.co_firstlineno,
        arguments=code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + stars],
        returns=not getattr(reason, "graph_break", False),
        cuda_graphs=asks_for_cuda_graphs(output.compiler_fn),
        inputs=tuple(
            m.GraphInput(name_of(node), static(node), is_made=is_made(node))
            for node in placeholders
        ),
        in_place=tuple(_in_place(graph, placeholders)),
        returned_inputs=tuple(dict.fromkeys(leaf.source for leaf in leaves if leaf.source)),
        returned_outputs=tuple(_given_back(graph, {leaf.identity for leaf in leaves})),
        returned_twice=tuple(
            dict.fromkeys(leaf.name for leaf in leaves if seen[leaf.identity] > 1)
        ),
    )


def _given_back(graph: torch.fx.Graph, returned: set[object]) -> Iterator[int]:
    """The graph's outputs that the function returns; it gives out others to assign them."""
    for node in graph.find_nodes(op="output"):
        for index, value in enumerate(_nodes(node.args[0])):
            if value in returned:
                yield index


# ---------------------------------------------------------------- what writes


def _in_place(graph: torch.fx.Graph, placeholders: list[torch.fx.Node]) -> Iterator[m.InPlace]:
    """Which placeholder an operator writes to is told by the storages of the tensors that Dynamo
    traced with."""
    inputs: dict[int, list[int]] = {}
    for index, node in enumerate(placeholders):
        if (storage := _traced_storage(node)) is not None:
            inputs.setdefault(storage, []).append(index)
    for node in graph.nodes:
        for target in _written(node):
            storage = _traced_storage(target)
            sharing = inputs.get(storage, []) if storage is not None else []
            # of a view: inputs that lie in one storage are told apart by what it was made of alone
            base = target
            while (
                base.args
                and isinstance(base.args[0], torch.fx.Node)
                and _traced_storage(base.args[0]) == storage
            ):
                base = base.args[0]
            for index in (
                [placeholders.index(base)] if base in placeholders and len(sharing) > 1 else sharing
            ):
                yield m.InPlace(index, operator_of(node), frames_of(node))


def writes_of_backward(graph: torch.fx.Graph) -> Iterator[m.InPlace]:
    """Of AOTAutograd's graph of a backward, which computes on new tensors and copies into what it
    was given."""
    placeholders = {
        node: index
        for index, node in enumerate(node for node in graph.nodes if node.op == "placeholder")
    }
    for node in graph.nodes:
        for target in _written(node):
            if target in placeholders:
                yield m.InPlace(placeholders[target], operator_of(node), frames_of(node))


def _traced_storage(node: torch.fx.Node) -> int | None:
    value = node.meta.get("example_value")
    return storage_id(value) if isinstance(value, torch.Tensor) else None


def _written(node: torch.fx.Node) -> Iterator[torch.fx.Node]:
    """The tensors that an operator of Dynamo's graph changes: torch's own convention is a name that
    ends in ``_``."""
    if node.op not in ("call_function", "call_method"):
        return
    target = node.target
    name = operator_of(node)
    # ``operator.or_`` has its underscore because ``or`` is a word of Python's.
    of_operator = getattr(target, "__module__", "") == operator.add.__module__
    yield from _nodes(node.kwargs.get("out"))
    if node.kwargs.get("inplace") is True or target in _AUGMENTED or target is operator.setitem:
        yield from _nodes(node.args[:1])
    elif (
        name in _RUNNING_STATISTICS
        and len(node.args) > _IN_TRAINING
        and node.args[_IN_TRAINING] is True
    ):
        yield from _nodes(node.args[1:3])
    elif isinstance(target, torch._ops.OpOverload):
        arguments = zip(target._schema.arguments, node.args, strict=False)
        yield from _nodes([value for argument, value in arguments if argument.is_write])
    elif name == "__setitem__" or (
        name.endswith("_") and not name.endswith("__") and not of_operator
    ):
        yield from _nodes(node.args[:1])


def _nodes(value: Any) -> Iterator[torch.fx.Node]:
    if isinstance(value, torch.fx.Node):
        yield value
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from _nodes(entry)


def operator_of(node: torch.fx.Node) -> str:
    return (
        node.target
        if isinstance(node.target, str)
        else str(getattr(node.target, "__name__", node.target))
    )


# ---------------------------------------------------------------- what is returned


class Returned(m.Model):
    identity: object  # equal for the same tensor
    name: str
    source: str  # Dynamo's, for an input that is returned as it is


def returned_tensors(translator: Any) -> tuple[Returned, ...]:
    """At Dynamo's RETURN_VALUE: the value lies on the top of its stack. Inputs that come back as
    they are never reach the graph's own outputs, and a tensor that is returned twice is there once.
    """
    stack = getattr(translator, "stack", None)
    return tuple(_leaves(stack[-1], [LEAVES])) if stack else ()


def _leaves(tracker: Any, room: list[int]) -> Iterator[Returned]:
    room[0] -= 1
    if room[0] < 0:
        return
    if hasattr(tracker, "is_realized"):
        # an argument that the function returns without having looked at it
        if not tracker.is_realized():
            peek = getattr(tracker, "peek_value", None)
            source = getattr(tracker, "source", None)
            if source is not None and callable(peek) and isinstance(peek(), torch.Tensor):
                name = str(source.name() if callable(source.name) else source.name)
                yield Returned(identity=name, name=name, source=name)
            return
        tracker = tracker.realize()
    proxy = getattr(tracker, "proxy", None)
    if proxy is not None and hasattr(proxy, "node"):
        node = proxy.node
        if isinstance(node.meta.get("example_value"), torch.Tensor):
            yield Returned(
                identity=node,
                name=node.name,
                source=name_of(node) if node.op == "placeholder" else "",
            )
        return
    for attribute in _CONTENTS:
        contents = vars(tracker).get(attribute)  # not getattr: what is a property there may raise
        if contents is None:
            continue
        inner = contents.values() if isinstance(contents, Mapping) else contents
        for entry in inner if isinstance(inner, Iterable) else (inner,):
            yield from _leaves(entry, room)
        return
