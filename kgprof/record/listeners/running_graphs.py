"""Which compiled graph a thread is running, and what Dynamo captured in it that reads a tensor.

    Dynamo compiles a graph ──capture──► Graph: the operators that read, and their lines
                            ──around──► a function in the graph's place
    a call of it ──► Graph.begins, RunningGraphs.running, then the lines that made its results

A read inside has no line of the program's on Python's stack: it is named by the next captured
operator of its kind.
"""

from __future__ import annotations

import linecache
import re
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from kgprof.record.ground.python_stack import BY_TORCH, Frames
from kgprof.record.ground.source import Function
from kgprof.record.listeners.captured_graph import operator_of
from kgprof.record.listeners.graph_hook import is_made
from kgprof.record.listeners.graph_lines import frames_of
from kgprof.record.listeners.installed_graphs import (
    COMPILE,
    INSTALL,
    InstalledGraphs,
    compile_id_of,
)
from kgprof.record.listeners.sync_hooks import ON_A_CPU, TENSORS
from kgprof.record.listeners.tensor_places import FACTORIES, HOST, UNNAMED

NAME = "sync hooks"
# What of Dynamo's graph comes to an operator that reads.
CAPTURED = frozenset(
    {
        "item",
        "tolist",
        "cond",
        "while_loop",
        "nonzero",
        "bincount",
        "argwhere",
        "getitem",
        "__getitem__",
        "setitem",
        "where",
        "masked_select",
        "unique",
        "unique_dim",
        "unique_consecutive",
        "repeat_interleave",
        "equal",
        "allclose",
        "linalg_cholesky",
        "linalg_inv",
        "linalg_ldl_factor",
        "linalg_lu_factor",
        "linalg_solve",
        "cpu",
        "to",
        "numpy",
        "bool",
        "int",
        "float",
        "_local_scalar_dense",
        "_unique2",
    }
)

FILLED = "masked_fill"
# an operator's name, where it stands, and where what it reads lies
Captured = tuple[str, Frames, str]


@dataclass
class Graph:
    """A compiled graph, and what in it comes to a read, in the order in which it runs; ``made``
    are the positions of arguments that are no tensors of the program's, ``computed``
    where each result lies that is made of these alone or by a factory without a device."""

    compile_id: str
    operators: tuple[Captured, ...] = ()
    made: tuple[int, ...] = ()
    returns: tuple[Frames, ...] = ()  # the lines of what made each of its results
    moves: bool = True  # a device is named in it
    computed: tuple[str, ...] = ()
    numbers: frozenset[int] = frozenset()  # the ids of ``made`` in the run that goes on
    at: Counter[str] = field(default_factory=Counter)  # by source

    @cached_property
    def on_a_cpu(self) -> tuple[Captured, ...]:
        return tuple(found for found in self.operators if found[0] in ON_A_CPU)

    def begins(self, args: tuple[Any, ...]) -> None:
        self.at.clear()
        self.numbers = frozenset(id(args[index]) for index in self.made if index < len(args))

    def computes_on_the_host(self, args: tuple[Any, ...]) -> bool:
        """Whether all that it is given lies there, as the arrays of compiled code of numpy's do."""
        if self.moves:
            return False
        return {TENSORS.of(value) for value in args if isinstance(value, torch.Tensor)} == {HOST}

    def next_operator(self, source: str) -> Captured:
        """The captured operator of the next read. ``while_loop`` reads its predicate as often as it
        likes."""
        operators = self.operators
        if source == "python-call":
            operators = self.on_a_cpu
        elif source == "dispatch":
            operators = tuple(each for each in operators if each[0] not in ON_A_CPU)
        if not operators:
            return "", (), ""
        at = self.at[source]
        self.at[source] += 1
        return operators[min(at, len(operators) - 1)]


class _Here(threading.local):
    """The graphs that this thread is running, one in the other: a read of another thread's is in
    none of them."""

    def __init__(self) -> None:
        self.stack: list[Graph] = []
        # by the identity of what the last of them returned, the lines that made it
        self.returned: dict[int, Frames] = {}


class RunningGraphs(InstalledGraphs):
    """Which compiled graph is running, and what Dynamo captured in it that reads; ``begins`` is
    told of each run."""

    name = NAME
    needs = (INSTALL, COMPILE)

    def __init__(self, begins: Callable[[Graph], None]) -> None:
        super().__init__()
        self._begins = begins
        self._here = _Here()

    @property
    def running(self) -> Graph | None:
        for innermost in self._here.stack[-1:]:
            return innermost
        return None

    def returned_at(self, tensor: torch.Tensor) -> Frames:
        """The lines that made a result of this thread's last graph; empty for any other tensor."""
        return self._here.returned.get(id(tensor), ())

    def capture(self, output: Any) -> Graph:
        """Dynamo turns a Python float (a learning rate, a probability) into a tensor of the CPU
        that the graph reads again, and an array of numpy's into one that shares its memory: neither
        would lie on a GPU."""
        numbers: dict[torch.fx.Node, int] = {}
        operators: list[Captured] = []
        moves = False
        inputs = 0
        for node in output.graph.nodes:
            name = operator_of(node)
            moves = moves or name in ("to", "cuda") or "device" in node.kwargs
            if node.op == "placeholder":
                if is_made(node):
                    numbers[node] = inputs
                inputs += 1
            elif node.op == "output":
                returns = node.args[0]
            elif _reads(node, name) and not (node.args and node.args[0] in numbers):
                device = _device_of(node)
                if name == "setitem" and _fills(node):
                    name = FILLED
                if name != FILLED or device == "cpu":
                    operators.append((name, frames_of(node), device))
        computed = tuple(_made_on_the_host(node, numbers) for node in returns)
        return Graph(
            compile_id_of(output),
            tuple(operators),
            tuple(numbers.values()),
            tuple(map(frames_of, returns)),
            moves,
            computed,
        )

    def around(self, output: Any, graph: Function, captured: Any) -> Function:
        if output.root_tx.f_code.co_filename.startswith(BY_TORCH):
            return graph  # where eager code calls torch.cond
        known = captured or Graph(compile_id_of(output))
        here = self._here

        def watched(*args: Any, **kwargs: Any) -> Any:
            stack = here.stack
            known.begins(args)
            self._begins(known)
            stack.append(known)
            try:
                found = graph(*args, **kwargs)
            finally:
                stack.pop()
            if known.computes_on_the_host(args):
                TENSORS.derived(args, found)
            TENSORS.lie(zip(found, known.computed, strict=False))
            here.returned = dict(zip(map(id, found), known.returns, strict=False))
            return found

        return torch._dynamo.disable(watched)  # type: ignore[no-any-return,no-untyped-call]


def _device_of(node: torch.fx.Node) -> str:
    for value in _values(node.args[:1]):
        return value.device.type
    return ""


def _values(arguments: Iterable[Any]) -> list[torch.Tensor]:
    """Those that were tensors when Dynamo captured them."""
    nodes = (each for each in arguments if isinstance(each, torch.fx.Node))
    values = (node.meta.get("example_value") for node in nodes)
    return [value for value in values if isinstance(value, torch.Tensor)]


# As tensor_places reads a call in eager code: "cpu", or a variable that is called so.
_SAYS_CPU = re.compile(r"\.to\((?:torch\.device\()?[^()]*cpu", re.IGNORECASE)


def _reads(node: torch.fx.Node, name: str) -> bool:
    """An index reads only where it is a mask, ``where`` only with one argument, ``to`` only where
    its line says "cpu": a device in a variable is the CPU here, and a GPU where there is one."""
    if name not in CAPTURED or node.op not in ("call_function", "call_method"):
        return False
    if name in ("getitem", "__getitem__", "setitem"):
        index: Any = node.args[1:2]
        if index and isinstance(index[0], list | tuple):
            (index,) = index
        return any(value.dtype in (torch.bool, torch.uint8) for value in _values(index))
    if name == "where":
        return len(node.args) + len(node.kwargs) == 1
    if name in ("bool", "int", "float"):  # of a tensor, the method only changes its type
        return node.op == "call_function"
    if name == "to":
        to_the_cpu = "cpu" in map(str, (*node.args[1:], *node.kwargs.values()))
        lines = [linecache.getline(at.file, at.line) for at in frames_of(node)[:1]]
        return to_the_cpu and all(_SAYS_CPU.search(line) for line in lines)
    return True


def _fills(node: torch.fx.Node) -> bool:
    """Whether a number of Python's is assigned through one mask: masked_fill, which needs to know
    nothing of a mask on a GPU."""
    _, index, given = node.args
    parts: Any = index
    if not isinstance(index, list | tuple):
        parts = (index,)
    return isinstance(given, int | float) and len(_values(parts)) == 1


def _made_on_the_host(node: torch.fx.Node, inputs: Collection[torch.fx.Node]) -> str:
    """Where what a node computes lies, if that comes from these inputs of its graph alone, from
    numbers that Dynamo took for constants and hands on as tensors of the CPU, and from factories
    that are given no device; else nothing."""
    met = {node}
    left = [node]
    place = HOST
    while left:
        here = left.pop()
        sources = [each for each in here.all_input_nodes if not _is_a_size(each)]
        if here.op in ("placeholder", "get_attr"):
            if here not in inputs:
                return ""
        elif not sources and here.target is not torch.scalar_tensor:
            if operator_of(here) not in FACTORIES or here.kwargs.get("device") is not None:
                return ""
            place = UNNAMED
        left.extend(each for each in sources if each not in met)
        met.update(sources)
    return place


def _is_a_size(node: torch.fx.Node) -> bool:
    return isinstance(node.meta.get("example_value"), int | torch.SymInt)
