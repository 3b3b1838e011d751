"""The tree of host stacks: Python functions, operators and CUDA calls, each under what called it, over the steps.

One thread, the one that takes the steps. What was open before a step and after it (the loop around the steps, ``main``)
is left away: it says nothing, and would be the same for every node. Operators that operators call are part of the
outer one. Whole nanoseconds, so that a node's time is its own and its children's exactly.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kgprof import model as m
from kgprof.measures import kernels
from kgprof.measures.nesting import HOST_CATEGORIES, frame_of
from kgprof.reading.evidence import RunEvidence
from kgprof.reading.kineto import Columns
from kgprof.reading.timeline import STEP_PREFIX, Window, intervals_of, step_marks, union_ns
from kgprof.wording import plural

PRUNED_BELOW = 0.0005  # share of the steps' time; doubled until the tree has MOST_NODES or fewer
MOST_NODES = 1_000
TOP_FUNCTIONS = 40
MOST_EVENTS = 500_000  # of the thread that takes the steps: as many steps as have them; two microseconds each
PYTHON = "python_function"
OTHER = "(other)"

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_BINDINGS = re.compile(r"pybind11_builtins\.\w+")  # pybind11's name of itself, with its compiler's
_OPERATOR = re.compile(r"\w+::\w+(\.\w+)?")  # of the dispatcher; what it calls is its own business
_REGIONS = ("Torch-Compiled Region", "## Call CompiledFxGraph", "CompiledFunction")
# Of a Python function by its file, first match wins; else it is the program's.
_PYTHON_KINDS = {
    "profiler": re.compile(
        r"(^|/)(torch/profiler/|torch/autograd/profiler\.py|kgprof/record/"
        r"|kgprof/workloads/(loading|programs|user|protocol|backend)\.py)"  # around the workload
    ),
    "generated": re.compile(r"/[a-z2-7]{2}/c[a-z2-7]{30,}\.py$"),  # Inductor's cache
    "torch": re.compile(r"(^|/)(torch|triton|functorch)/"),
}
_LOOP = ("_run", "kgprof/record/torch_profiler.py")
_CALLS = ("cuda_runtime", "cuda_driver")

Key = tuple[str, str, int, str]  # name, file, line, kind


def shown(run: RunEvidence) -> m.FlameGraph | m.Skipped:
    """From STACK; of a trace that was taken in, from the one whose kernels are shown, which may hold stacks."""
    name = m.PassName.STACK
    if run.whole.recording.header.plan.trace_files:
        broken_down = run.once(kernels.shown)
        if isinstance(broken_down, m.Skipped):
            return broken_down
        name = broken_down.measured_in
    trace = run.trace(name)
    return trace if isinstance(trace, m.Skipped) else flame_graph(trace.columns, measured_in=name)


def flame_graph(columns: Columns, *, measured_in: m.PassName) -> m.FlameGraph | m.Skipped:
    """Skipped where the trace holds no Python functions, or its steps no time."""
    if not columns.of_category(PYTHON).any():
        return m.Skipped(reason="its trace holds no Python functions: it was recorded without stacks")
    host = columns.of_category(*HOST_CATEGORIES)
    thread, windows, per = _windows(columns, host)
    events = np.flatnonzero(host & (columns.thread == thread) & ~columns.named(STEP_PREFIX))
    starts = np.sort(columns.start_ns[events])
    begins, ends = (
        np.searchsorted(starts, moments)
        for moments in ([window.start_ns for window in windows], [window.end_ns for window in windows])
    )
    taken = windows[: max(1, int((np.cumsum(ends - begins) <= MOST_EVENTS).sum()))]
    pairs = np.unique(np.stack([columns.category[events], columns.name[events]], axis=1), axis=0).tolist()
    keys = {(category, name): _key(columns.categories[category], columns.names[name]) for category, name in pairs}
    tree = _Tree(per)
    start, end = columns.start_ns[events], columns.end_ns[events]
    for window in taken:
        inside = (start < window.end_ns) & (end > window.start_ns)
        if per == "step":  # without what is open all the while
            inside &= (start > window.start_ns) | (end < window.end_ns)
        _add_step(tree, keys, columns, events[inside], window)
    if not any(tree.self_ns):
        return m.Skipped(reason="its steps have no duration")
    # In which other threads were in operators, each thread's counted once.
    operators = columns.of_category("cpu_op") & (columns.thread != thread)
    threads = [operators & (columns.thread == other) for other in np.unique(columns.thread[operators])]
    elsewhere_ns = sum(union_ns(window.clip(intervals_of(columns, own))) for own in threads for window in taken)
    return _graph(
        tree,
        measured_in=measured_in,
        steps=len(taken),
        per=per,
        other_threads_ns=elsewhere_ns,
        notes=() if len(taken) == len(windows) else (f"of {plural(len(windows), per)} the first {len(taken):,}",),
    )


def _windows(columns: Columns, host: npt.NDArray[np.bool_]) -> tuple[int, tuple[Window, ...], str]:
    """The thread that takes the steps, and when they were; where none is marked, all of the thread with most Python."""
    marks = np.flatnonzero(step_marks(columns))
    if len(marks):
        thread = int(np.bincount(columns.thread[marks]).argmax())
        marks = marks[columns.thread[marks] == thread]
        marks = marks[np.argsort(columns.start_ns[marks], kind="stable")]
        steps = intervals_of(columns, marks).tolist()
        return thread, tuple(Window(start_ns=start, end_ns=end) for start, end in steps), "step"
    python = columns.of_category(PYTHON)
    thread = int(np.bincount(columns.thread[python]).argmax())
    spans = intervals_of(columns, host & (columns.thread == thread))
    return thread, (Window(start_ns=int(spans[:, 0].min()), end_ns=int(spans[:, 1].max())),), "window"


def _key(category: str, name: str) -> Key:
    if category == PYTHON:
        frame = frame_of(name)
        if frame.line is not None:
            kind = next((kind for kind, files in _PYTHON_KINDS.items() if files.search(frame.file)), "python")
            return frame.name, frame.file, frame.line, kind
        kind = "module" if name.startswith("nn.Module: ") else "builtin"
        return _BINDINGS.sub("pybind11", _ADDRESS.sub("", name)), "", 0, kind
    if category in _CALLS:
        return name, "", 0, "call"
    if name.startswith(_REGIONS):
        return name, "", 0, "region"
    return name, "", 0, "span" if category == "user_annotation" else "operator"


class _Tree:
    """Node 0 is the step. Parents come before their children."""

    def __init__(self, root: str) -> None:
        self.key: list[Key] = [(root, "", 0, "step")]
        self.parent, self.self_ns, self.calls = [-1], [0], [0]
        self.children: list[dict[Key, int]] = [{}]

    def child(self, node: int, key: Key) -> int:
        found = self.children[node].get(key)
        if found is None:
            found = self.children[node][key] = len(self.key)
            self.key.append(key)
            self.parent.append(node)
            self.self_ns.append(0)
            self.calls.append(0)
            self.children.append({})
        return found


def _add_step(
    tree: _Tree, keys: Mapping[tuple[int, int], Key], columns: Columns, here: npt.NDArray[np.intp], window: Window
) -> None:
    # Of two that start together the longer one is the outer one; of two that are alike the one that stands first.
    here = here[np.lexsort((-columns.end_ns[here], columns.start_ns[here]))]
    tree.self_ns[0] += window.duration_ns
    tree.calls[0] += 1
    starts = np.maximum(columns.start_ns[here], window.start_ns).tolist()
    ends = np.minimum(columns.end_ns[here], window.end_ns).tolist()
    kinds, names = columns.category[here].tolist(), columns.name[here].tolist()
    open_nodes, open_ends = [0], [window.end_ns]
    for start_ns, end_ns, category, name in zip(starts, ends, kinds, names, strict=True):
        while len(open_ends) > 1 and open_ends[-1] <= start_ns:
            open_nodes.pop()
            open_ends.pop()
        above = open_nodes[-1]
        key, outer = keys[category, name], tree.key[above]
        # An operator that an operator of the dispatcher calls is a part of it.
        if key[3] == outer[3] == "operator" and _OPERATOR.fullmatch(outer[0]) is not None:
            continue
        # The loop around the steps, kgprof's, begins in the first of them and not before it.
        if key[0] == _LOOP[0] and key[1].endswith(_LOOP[1]):
            continue
        node = tree.child(above, key)
        # Kineto rounds, and mixes clocks: one that goes on beyond what it began in is cut there.
        until = min(end_ns, open_ends[-1])
        tree.calls[node] += 1
        tree.self_ns[node] += until - start_ns
        tree.self_ns[above] -= until - start_ns
        open_nodes.append(node)
        open_ends.append(until)


def _graph(
    tree: _Tree, *, measured_in: m.PassName, steps: int, per: str, other_threads_ns: int, notes: tuple[str, ...]
) -> m.FlameGraph:
    totals = m.with_all_below(tree.parent, tree.self_ns)
    below = PRUNED_BELOW
    while len(kept := _pruned(tree, totals, below)) > MOST_NODES:
        below *= 2
    functions = sorted(_functions(tree, totals).items(), key=lambda item: (-item[1][0], item[0]))
    # Each name and each frame once, in the order in which they come.
    names: dict[str, int] = {"": 0}
    frames: dict[m.StackFrame, int] = {}

    def frame(key: Key) -> int:
        name, file = (names.setdefault(each, len(names)) for each in key[:2])
        return frames.setdefault(m.StackFrame(name=name, file=file, line=key[2], kind=key[3]), len(frames))

    nodes = tuple(frame(node.key) for node in kept)
    top = tuple(
        m.StackFunction(frame=frame(key), self_ns=self_ns, total_ns=total_ns, calls=calls)
        for key, (self_ns, total_ns, calls) in functions[:TOP_FUNCTIONS]
    )
    others = [node for node in kept if node.key == _OTHERS]
    return m.FlameGraph(
        measured_in=measured_in,
        steps=steps,
        per=per,
        names=tuple(names),
        frames=tuple(frames),
        parent=tuple(node.parent for node in kept),
        frame=nodes,
        self_ns=tuple(node.self_ns for node in kept),
        calls=tuple(node.calls for node in kept),
        pruned_below=below,
        pruned_nodes=len(tree.key) - len(kept) + len(others),
        pruned_ns=sum(node.self_ns for node in others),
        top=top,
        functions=len(functions),
        other_threads_ns=other_threads_ns,
        notes=notes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    key: Key
    parent: int  # index among the kept ones
    self_ns: int
    calls: int


_OTHERS: Key = (OTHER, "", 0, "pruned")


def _pruned(tree: _Tree, totals: Sequence[int], below: float) -> list[_Node]:
    """The nodes with at least ``below`` of the whole, the larger of two children first, and one for the others."""
    least, calls = below * totals[0], m.with_all_below(tree.parent, tree.calls)
    kept: list[_Node] = []
    waiting = [(-1, tree.key[0], [0])]  # the parent among the kept ones, and the nodes that stand in it as one
    while waiting:
        parent, key, nodes = waiting.pop()
        if key == _OTHERS:
            small_ns, called = sum(totals[node] for node in nodes), sum(calls[node] for node in nodes)
            kept.append(_Node(key=key, parent=parent, self_ns=small_ns, calls=called))
            continue
        (node,), here = nodes, len(kept)
        kept.append(_Node(key=key, parent=parent, self_ns=tree.self_ns[node], calls=tree.calls[node]))
        children = sorted(tree.children[node].values(), key=lambda child: (totals[child], child))
        if small := [child for child in children if totals[child] < least]:
            waiting.append((here, _OTHERS, small))
        waiting += [(here, tree.key[child], [child]) for child in children if totals[child] >= least]
    return kept


def _functions(tree: _Tree, totals: Sequence[int]) -> dict[Key, tuple[int, int, int]]:
    """Self time, total time and calls of each function, operator or span over the whole tree; the step is none."""
    self_ns, total_ns, calls, open_above = (Counter[Key]() for _ in range(4))
    waiting = [(child, True) for child in tree.children[0].values()]
    while waiting:
        node, enters = waiting.pop()
        key = tree.key[node]
        if not enters:
            open_above[key] -= 1
            continue
        self_ns[key] += tree.self_ns[node]
        calls[key] += tree.calls[node]
        if not open_above[key]:
            total_ns[key] += totals[node]
        open_above[key] += 1
        waiting.append((node, False))
        waiting += [(child, True) for child in tree.children[node].values()]
    return {key: (self_ns[key], total_ns[key], calls[key]) for key in calls}
