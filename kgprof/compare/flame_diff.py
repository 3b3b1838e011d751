"""Two flame graphs as one: every stack that either of them has, with its time in both.

Stacks are the same where the names on the way to them are: function, and its file's name without
folders and lines, which move when code is edited. Numbers that torch counts up, and names that it
makes from the code, are left away.
"""

import posixpath
import re
from collections.abc import Sequence

from kgprof import model as m
from kgprof.compare.metrics import both_known
from kgprof.measures.host_stacks import Frames

_COUNTED = (
    (re.compile(r"^(Torch-Compiled Region): .*"), r"\1"),
    (re.compile(r"^(## Call CompiledFxGraph) .* ##$"), r"\1 ##"),
    (re.compile(r"^(torch_dynamo_resume_in_.*)_at_\d+$"), r"\1"),
)
_EVALUATED = re.compile(r"^<eval_with_key>\.\d+$")  # torch.fx's file of generated code
_GENERATED = "generated"

Key = tuple[str, str, str]  # name, file, kind


def of_runs(base: m.RunReport, head: m.RunReport) -> m.FlameDifference | None:
    """None where either has no stacks, or one of them marks no steps: then there is no common
    unit."""
    both = both_known(base.flame, head.flame)
    if both is None or both[0].per != both[1].per:
        return None
    return flame_difference(*both)


def flame_difference(base: m.FlameGraph, head: m.FlameGraph) -> m.FlameDifference:
    # by the node above and its key; parents come before their children
    nodes: dict[tuple[int, Key], int] = {}
    self_ns: list[list[int]] = []  # of each node, a step: base's and head's
    places: list[tuple[str, int]] = []  # file and line
    for side, graph in enumerate((base, head)):  # head's places win: they are where a reader looks
        mine: list[int] = []
        for node, frame in enumerate(graph.frames[index] for index in graph.frame):
            above = mine[graph.parent[node]] if graph.parent[node] >= 0 else -1
            here = nodes.setdefault((above, key_of(graph, frame)), len(nodes))
            if here == len(places):
                places.append(("", 0))
                self_ns.append([0, 0])
            places[here] = (graph.names[frame.file], frame.line)
            self_ns[here][side] += round(graph.self_ns[node] / graph.steps)
            mine.append(here)
    parents = [above for above, _ in nodes]
    keys = [key for _, key in nodes]
    order = _order(parents, keys, self_ns)
    index = {node: place for place, node in enumerate(order)}
    frames = Frames()
    frame_of = []
    for node in order:
        (name, _, kind), (file, line) = keys[node], places[node]
        frame_of.append(frames.index(name, file, line, kind))
    return m.FlameDifference(
        base_steps=base.steps,
        head_steps=head.steps,
        names=tuple(frames.names),
        frames=tuple(frames.frames),
        parent=tuple(index.get(parents[node], -1) for node in order),
        frame=tuple(frame_of),
        base_self_ns=tuple(self_ns[node][0] for node in order),
        head_self_ns=tuple(self_ns[node][1] for node in order),
        pruned_below=max(base.pruned_below, head.pruned_below),
    )


def key_of(graph: m.FlameGraph, frame: m.StackFrame) -> Key:
    """What two stacks are matched by."""
    name = graph.names[frame.name]
    file = graph.names[frame.file]
    for counted, put in _COUNTED:
        name = counted.sub(put, name)
    if frame.kind == _GENERATED or _EVALUATED.match(file):
        file = "<generated>"
    return name, posixpath.basename(file.replace("\\", "/")), frame.kind


def _order(
    parents: Sequence[int], keys: Sequence[Key], self_ns: Sequence[Sequence[int]]
) -> list[int]:
    """From the root down, of two children the larger one first, on whichever side it is larger; the
    rest last."""
    totals = [list(both) for both in self_ns]
    children: list[list[int]] = [[] for _ in parents]
    for node in range(len(parents) - 1, 0, -1):
        children[parents[node]].append(node)
        for side, below_ns in enumerate(totals[node]):
            totals[parents[node]][side] += below_ns
    order = []
    waiting = [0]
    while waiting:
        node = waiting.pop()
        order.append(node)
        waiting += sorted(
            children[node],
            key=lambda child: (keys[child][2] != "pruned", max(totals[child]), keys[child]),
        )
    return order
