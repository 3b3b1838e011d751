"""The tree of host stacks: Python functions, operators and CUDA calls, each under what called it, over the steps.

One thread, the one that takes the steps. What was open before a step and after it (the loop around the steps, ``main``)
is left away: it says nothing, and would be the same for every node. Operators that operators call are part of the
outer one. Whole nanoseconds, so that a node's time is its own and its children's exactly.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field

import numpy as np
import numpy.typing as npt

from kgprof import model as m
from kgprof.measures import kernels
from kgprof.measures.nesting import HOST_CATEGORIES, frame_of
from kgprof.reading.evidence import RunEvidence
from kgprof.reading.kineto import Columns
from kgprof.reading.timeline import STEP_PREFIX, Window, intervals_of, union_ns
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
_OF_PROFILER = re.compile(r"(^|/)(torch/profiler/|torch/autograd/profiler\.py|kgprof/record/)")
_OF_KGPROF = re.compile(r"(^|/)kgprof/workloads/(loading|programs|user|protocol|backend)\.py")  # around the workload
_OF_TORCH = re.compile(r"(^|/)(torch|triton|functorch)/")
_GENERATED = re.compile(r"/[a-z2-7]{2}/c[a-z2-7]{30,}\.py$")  # Inductor's cache
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
    taken = _that_fit(columns, events, windows)
    tree = _Tree(keys=_keys(columns), root=per)
    for window in taken:
        _add_step(tree, columns, _inside(columns, events, window, around=per == "window"), window)
    if not any(tree.self_ns):
        return m.Skipped(reason="its steps have no duration")
    return _graph(
        tree,
        measured_in=measured_in,
        steps=len(taken),
        per=per,
        other_threads_ns=_operators_elsewhere(columns, thread, taken),
        notes=() if len(taken) == len(windows) else (f"of {plural(len(windows), per)} the first {len(taken):,}",),
    )


# ---------------------------------------------------------------- which events


def _windows(columns: Columns, host: npt.NDArray[np.bool_]) -> tuple[int, tuple[Window, ...], str]:
    """The thread that takes the steps, and when they were; where none is marked, all of the thread with most Python."""
    marks = np.flatnonzero(columns.of_category("user_annotation", "cpu_op") & columns.named(STEP_PREFIX))
    if len(marks):
        thread = int(np.bincount(columns.thread[marks]).argmax())
        marks = marks[columns.thread[marks] == thread]
        marks = marks[np.argsort(columns.start_ns[marks], kind="stable")]
        return thread, tuple(_window(columns, mark) for mark in marks), "step"
    python = columns.of_category(PYTHON)
    thread = int(np.bincount(columns.thread[python]).argmax())
    spans = intervals_of(columns, host & (columns.thread == thread))
    return thread, (Window(start_ns=int(spans[:, 0].min()), end_ns=int(spans[:, 1].max())),), "window"


def _window(columns: Columns, mark: np.intp) -> Window:
    return Window(start_ns=int(columns.start_ns[mark]), end_ns=int(columns.end_ns[mark]))


def _that_fit(columns: Columns, events: npt.NDArray[np.intp], windows: Sequence[Window]) -> tuple[Window, ...]:
    """At least one."""
    starts = np.sort(columns.start_ns[events])
    ends = np.searchsorted(starts, [window.end_ns for window in windows])
    begins = np.searchsorted(starts, [window.start_ns for window in windows])
    fitting = int((np.cumsum(ends - begins) <= MOST_EVENTS).sum())
    return tuple(windows[: max(1, fitting)])


def _operators_elsewhere(columns: Columns, thread: int, windows: Sequence[Window]) -> int:
    """Nanoseconds of the steps in which other threads were in operators, each thread's counted once."""
    total = 0
    operators = columns.of_category("cpu_op") & (columns.thread != thread)
    for other in np.unique(columns.thread[operators]).tolist():
        spans = intervals_of(columns, operators & (columns.thread == other))
        total += sum(union_ns(window.clip(spans)) for window in windows)
    return total


# ---------------------------------------------------------------- what they are


def _keys(columns: Columns) -> Mapping[tuple[int, int], Key]:
    """Of each pair of a category and a name that occurs, by their indices."""
    pairs = np.unique(np.stack([columns.category, columns.name], axis=1), axis=0).tolist()
    return {
        (category, name): _key(columns.categories[category], columns.names[name])
        for category, name in pairs
        if columns.categories[category] in HOST_CATEGORIES
    }


def _key(category: str, name: str) -> Key:
    if category == PYTHON:
        frame = frame_of(name)
        if frame.line is not None:
            return frame.name, frame.file, frame.line, _python_kind(frame.file)
        kind = "module" if name.startswith("nn.Module: ") else "builtin"
        return _BINDINGS.sub("pybind11", _ADDRESS.sub("", name)), "", 0, kind
    if category in _CALLS:
        return name, "", 0, "call"
    if name.startswith(_REGIONS):
        return name, "", 0, "region"
    return name, "", 0, "span" if category == "user_annotation" else "operator"


def _python_kind(file: str) -> str:
    if _OF_PROFILER.search(file) or _OF_KGPROF.search(file):
        return "profiler"
    if _GENERATED.search(file):
        return "generated"
    return "torch" if _OF_TORCH.search(file) else "python"


# ---------------------------------------------------------------- the tree


@dataclass(kw_only=True)
class _Tree:
    """Node 0 is the step. Parents come before their children."""

    keys: Mapping[tuple[int, int], Key]
    root: InitVar[str]
    key: list[Key] = field(init=False)
    parent: list[int] = field(default_factory=lambda: [-1])
    self_ns: list[int] = field(default_factory=lambda: [0])
    calls: list[int] = field(default_factory=lambda: [0])
    children: list[dict[Key, int]] = field(default_factory=lambda: [{}])

    def __post_init__(self, root: str) -> None:
        self.key = [(root, "", 0, "step")]

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

    def totals(self) -> list[int]:
        totals = list(self.self_ns)
        for node in range(len(totals) - 1, 0, -1):
            totals[self.parent[node]] += totals[node]
        return totals


def _inside(columns: Columns, events: npt.NDArray[np.intp], window: Window, *, around: bool) -> npt.NDArray[np.intp]:
    """In the order in which they open; without those that are open all the while, unless ``around``."""
    start, end = columns.start_ns[events], columns.end_ns[events]
    inside = (start < window.end_ns) & (end > window.start_ns)
    if not around:
        inside &= (start > window.start_ns) | (end < window.end_ns)
    here = events[inside]
    # Of two that start together the longer one is the outer one; of two that are alike the one that stands first.
    return here[np.lexsort((-columns.end_ns[here], columns.start_ns[here]))]


def _add_step(tree: _Tree, columns: Columns, here: npt.NDArray[np.intp], window: Window) -> None:
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
        key = tree.keys[category, name]
        if _is_part_of(tree.key[above], key) or _is_the_loop(key):
            continue
        node = tree.child(above, key)
        # Kineto rounds, and mixes clocks: one that goes on beyond what it began in is cut there.
        until = min(end_ns, open_ends[-1])
        tree.calls[node] += 1
        tree.self_ns[node] += until - start_ns
        tree.self_ns[above] -= until - start_ns
        open_nodes.append(node)
        open_ends.append(until)


def _is_part_of(above: Key, key: Key) -> bool:
    """An operator that an operator of the dispatcher calls."""
    return key[3] == above[3] == "operator" and _OPERATOR.fullmatch(above[0]) is not None


def _is_the_loop(key: Key) -> bool:
    """Around the steps, kgprof's: it begins in the first of them and not before it."""
    return key[0] == _LOOP[0] and key[1].endswith(_LOOP[1])


# ---------------------------------------------------------------- what is said of it


def _graph(
    tree: _Tree, *, measured_in: m.PassName, steps: int, per: str, other_threads_ns: int, notes: tuple[str, ...]
) -> m.FlameGraph:
    totals = tree.totals()
    below = PRUNED_BELOW
    while len(kept := _pruned(tree, totals, below)) > MOST_NODES:
        below *= 2
    functions = sorted(_functions(tree, totals).items(), key=lambda item: (-item[1].self_ns, item[0]))
    index = _Index()
    frame = tuple(index.frame(node.key) for node in kept)
    top = tuple(
        m.StackFunction(frame=index.frame(key), self_ns=found.self_ns, total_ns=found.total_ns, calls=found.calls)
        for key, found in functions[:TOP_FUNCTIONS]
    )
    others = [node for node in kept if node.key == _OTHERS]
    return m.FlameGraph(
        measured_in=measured_in,
        steps=steps,
        per=per,
        names=tuple(index.names),
        frames=tuple(
            m.StackFrame(name=name, file=file, line=line, kind=kind) for name, file, line, kind in index.frames
        ),
        parent=tuple(node.parent for node in kept),
        frame=frame,
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
    least = below * totals[0]
    kept: list[_Node] = []
    waiting = [(0, -1)]
    while waiting:
        node, parent = waiting.pop()
        if node < 0:  # stands for the small children of ``parent``, which is -node - 1 in the tree
            kept.append(_others(tree, totals, -node - 1, parent, least))
            continue
        here = len(kept)
        kept.append(_Node(key=tree.key[node], parent=parent, self_ns=tree.self_ns[node], calls=tree.calls[node]))
        children = tree.children[node].values()
        if any(totals[child] < least for child in children):
            waiting.append((-node - 1, here))
        large = [child for child in children if totals[child] >= least]
        waiting += [(child, here) for child in sorted(large, key=lambda child: (totals[child], child))]
    return kept


def _others(tree: _Tree, totals: Sequence[int], node: int, parent: int, least: float) -> _Node:
    small = [child for child in tree.children[node].values() if totals[child] < least]
    calls, waiting = 0, list(small)
    while waiting:
        below = waiting.pop()
        calls += tree.calls[below]
        waiting += tree.children[below].values()
    return _Node(key=_OTHERS, parent=parent, self_ns=sum(totals[child] for child in small), calls=calls)


@dataclass(slots=True, kw_only=True)
class _Function:
    self_ns: int = 0
    total_ns: int = 0
    calls: int = 0


def _functions(tree: _Tree, totals: Sequence[int]) -> dict[Key, _Function]:
    """Each function, operator or span over the whole tree; the step itself is none."""
    found: dict[Key, _Function] = defaultdict(_Function)
    open_above: dict[Key, int] = defaultdict(int)
    waiting = [(child, True) for child in tree.children[0].values()]
    while waiting:
        node, enters = waiting.pop()
        key = tree.key[node]
        if not enters:
            open_above[key] -= 1
            continue
        function = found[key]
        function.self_ns += tree.self_ns[node]
        function.calls += tree.calls[node]
        if not open_above[key]:
            function.total_ns += totals[node]
        open_above[key] += 1
        waiting.append((node, False))
        waiting += [(child, True) for child in tree.children[node].values()]
    return found


class _Index:
    """Each name and each frame once, by the order in which they are asked for."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {"": 0}
        self.frames: dict[tuple[int, int, int, str], int] = {}

    def frame(self, key: Key) -> int:
        name, file, line, kind = key
        frame = (self._name(name), self._name(file), line, kind)
        return self.frames.setdefault(frame, len(self.frames))

    def _name(self, name: str) -> int:
        return self.names.setdefault(name, len(self.names))
