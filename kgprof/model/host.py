"""What the host did: Python's functions by cProfile, and its stacks."""

from __future__ import annotations

from collections.abc import Sequence

from kgprof.model.passes import HostRow, PassName
from kgprof.model.structs import Model, Tagged


class StackFrame(Model, frozen=True, kw_only=True, array_like=True):
    """What a node of a FlameGraph is: a function, an operator, a span.

    ``kind``: python, torch (Python too, torch's own), generated (Inductor's), builtin, module, operator, region, span,
    call, profiler, pruned, step.
    """

    name: int  # index into ``names``
    file: int  # likewise; names[0] is empty: it has none
    line: int  # of the def; 0: none
    kind: str


class StackFunction(Model, frozen=True, kw_only=True):
    """One frame over the whole tree, before anything was pruned."""

    frame: int
    self_ns: int  # over all steps
    total_ns: int  # a recursion counts once
    calls: int


def with_all_below(parent: Sequence[int], own: Sequence[int]) -> list[int]:
    """Of a tree whose parents stand before their children: what each node has of its own, and all below it."""
    totals = list(own)
    for node in range(len(totals) - 1, 0, -1):
        totals[parent[node]] += totals[node]
    return totals


class FlameGraph(Tagged, frozen=True, kw_only=True, tag="flamegraph"):
    """The host's stacks in the steps of STACK, on the thread that takes them; parents stand before their children.

    Node 0 is the step. Nanoseconds and calls are over all ``steps`` together, so that they are whole numbers and add
    up: the sum over ``self_ns`` is that of the steps' durations. What took less than ``pruned_below`` of it stands in
    one node "(other)" under its parent, whose calls are those of what it stands for.
    """

    measured_in: PassName
    steps: int
    per: str = "step"  # "window" where the trace marks no steps
    names: tuple[str, ...]
    frames: tuple[StackFrame, ...]
    parent: tuple[int, ...]  # of each node; -1 of the first
    frame: tuple[int, ...]  # index into ``frames``
    self_ns: tuple[int, ...]
    calls: tuple[int, ...]
    pruned_below: float  # share of the steps' time, 0..1
    pruned_nodes: int
    pruned_ns: int  # what all "(other)" stand for
    top: tuple[StackFunction, ...]  # by self time, largest first
    functions: int  # how many frames there are in all, of which ``top`` has the first
    other_threads_ns: int = 0  # in which other threads were in operators, added up over those threads
    notes: tuple[str, ...] = ()

    @property
    def total_ns(self) -> tuple[int, ...]:
        """Of each node, with all below it."""
        return tuple(with_all_below(self.parent, self.self_ns))


class HostBreakdown(Tagged, frozen=True, kw_only=True, tag="hostfunctions"):
    steps: int
    total_self_us: float
    rows: tuple[HostRow, ...]
    rows_left_out: int
