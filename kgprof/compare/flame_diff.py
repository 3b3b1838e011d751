"""Two flame graphs as one: every stack that either of them has, with its time in both.

Stacks are the same where the names on the way to them are: function, and its file's name without folders and lines,
which move when code is edited. Numbers that torch counts up, and names that it makes from the code, are left away.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, field

from kgprof import model as m

_COUNTED = (
    (re.compile(r"^(Torch-Compiled Region): .*"), r"\1"),
    (re.compile(r"^(## Call CompiledFxGraph) .* ##$"), r"\1 ##"),
    (re.compile(r"^(torch_dynamo_resume_in_.*)_at_\d+$"), r"\1"),
)
_EVALUATED = re.compile(r"^<eval_with_key>\.\d+$")  # torch.fx's file of generated code
_GENERATED = "generated"

Key = tuple[str, str, str]  # name, file, kind


def of_runs(base: m.RunReport, head: m.RunReport) -> m.FlameDifference | None:
    """None where either has no stacks, or one of them marks no steps: then there is no common unit."""
    if isinstance(base.flame, m.Skipped) or isinstance(head.flame, m.Skipped) or base.flame.per != head.flame.per:
        return None
    return flame_difference(base.flame, head.flame)


def flame_difference(base: m.FlameGraph, head: m.FlameGraph) -> m.FlameDifference:
    tree = _Both()
    tree.add(base, 0)
    tree.add(head, 1)  # its places win: they are where a reader looks
    order = tree.order()
    index = {node: place for place, node in enumerate(order)}
    names: dict[str, int] = {"": 0}
    frames: dict[m.StackFrame, int] = {}
    frame = tuple(frames.setdefault(tree.frame(node, names), len(frames)) for node in order)
    return m.FlameDifference(
        base_steps=base.steps,
        head_steps=head.steps,
        names=tuple(names),
        frames=tuple(frames),
        parent=tuple(index.get(tree.parent[node], -1) for node in order),
        frame=frame,
        base_self_ns=tuple(tree.self_ns[0][node] for node in order),
        head_self_ns=tuple(tree.self_ns[1][node] for node in order),
        pruned_below=max(base.pruned_below, head.pruned_below),
    )


def key_of(graph: m.FlameGraph, frame: m.StackFrame) -> Key:
    """What two stacks are matched by."""
    name, file = graph.names[frame.name], graph.names[frame.file]
    for counted, put in _COUNTED:
        name = counted.sub(put, name)
    if frame.kind == _GENERATED or _EVALUATED.match(file):
        file = "<generated>"
    return name, posixpath.basename(file.replace("\\", "/")), frame.kind


@dataclass(kw_only=True)
class _Both:
    """Nodes of both, parents before their children; nanoseconds a step."""

    key: list[Key] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)
    place: list[tuple[str, int]] = field(default_factory=list)  # file and line
    self_ns: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))
    found: dict[tuple[int, Key], int] = field(default_factory=dict)

    def add(self, graph: m.FlameGraph, side: int) -> None:
        mine: list[int] = []
        for node, frame in enumerate(graph.frames[index] for index in graph.frame):
            above = mine[graph.parent[node]] if graph.parent[node] >= 0 else -1
            key = key_of(graph, frame)
            here = self.found.setdefault((above, key), len(self.key))
            if here == len(self.key):
                self.key.append(key)
                self.parent.append(above)
                self.place.append(("", 0))
                for own_ns in self.self_ns:
                    own_ns.append(0)
            self.place[here] = (graph.names[frame.file], frame.line)
            self.self_ns[side][here] += round(graph.self_ns[node] / graph.steps)
            mine.append(here)

    def order(self) -> list[int]:
        """From the root down, of two children the larger one first, on whichever side it is larger; the rest last."""
        totals = [list(side) for side in self.self_ns]
        children: list[list[int]] = [[] for _ in self.key]
        for node in range(len(self.key) - 1, 0, -1):
            children[self.parent[node]].append(node)
            for total in totals:
                total[self.parent[node]] += total[node]
        order, waiting = [], [0]
        while waiting:
            node = waiting.pop()
            order.append(node)
            size = {child: max(total[child] for total in totals) for child in children[node]}
            waiting += sorted(size, key=lambda child: (self.key[child][2] != "pruned", size[child], self.key[child]))
        return order

    def frame(self, node: int, names: dict[str, int]) -> m.StackFrame:
        (name, _, kind), (file, line) = self.key[node], self.place[node]
        return m.StackFrame(
            name=names.setdefault(name, len(names)),
            file=names.setdefault(file, len(names)),
            line=line,
            kind=kind,
        )
