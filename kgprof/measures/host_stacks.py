"""Stacks read from a trace: what was open when on each thread and stream, and from it the flame
graph of the steps.

    nesting      Columns ─► threads, streams ─► what opens and closes in each ─► Nesting
    flame_graph  Columns ─► the thread that takes the steps, and its windows
                        ─► one tree of all steps ─┬► pruned ───────────────────► FlameGraph
                                                  └► each function, over it all ─┘

``nesting`` gives openings and closings in order. Every opening has its closing, and what was opened
last is closed first, which is how flame graphs and stack viewers want it. Events of one thread that
merely overlap (Kineto rounds, and mixes clocks; so do kernels of one stream) are not cut short:
where the outer one ends, the inner one is closed and opened again, so that each keeps its whole
duration.

The flame graph is of one thread, the one that takes the steps: Python functions, operators and CUDA
calls, each under what called it. What was open before a step and after it (the loop around the
steps, ``main``) is left away: it says nothing, and would be the same for every node. Operators that
operators call are part of the outer one. Times are whole nanoseconds, so that a node's time is its
own and its children's exactly.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from msgspec.structs import replace

from kgprof import model as m
from kgprof.measures import kernels
from kgprof.measures.idle import HOST_CATEGORIES
from kgprof.reading.evidence import RunEvidence
from kgprof.reading.kineto import NONE, Columns
from kgprof.reading.launches import (
    DEVICE_CATEGORIES,
    LAUNCH_CATEGORIES,
    Indices,
    Mask,
    threads_of,
)
from kgprof.reading.timeline import (
    STEP_PREFIX,
    Intervals,
    Numbers,
    Window,
    intervals_of,
    step_events,
    union_ns,
    window_of,
)
from kgprof.wording import plural

# longer numbers are no lines
_PYTHON_FUNCTION = re.compile(r"(?P<file>.+)\((?P<line>\d{1,9})\): (?P<name>.+)")
_NEVER = 2**63 - 1


class Frame(m.Model, kw_only=False, omit_defaults=True):
    """``file`` and ``line`` (from 1) of a Python function in a trace with stacks; of anything else
    there is none."""

    name: str
    file: str = ""
    line: int | None = None


class Change(m.Model, kw_only=False):
    at_ns: int
    opens: bool  # else it closes
    frame: int  # index into ``Nesting.frames``


class Track(m.Model, kw_only=False):
    """One thread or stream."""

    name: str
    changes: tuple[Change, ...]


class Nesting(m.Model, kw_only=False):
    """Nanoseconds from the first event on; the thread that takes the steps comes first, streams
    come last."""

    frames: tuple[Frame, ...]
    tracks: tuple[Track, ...]

    @property
    def end_ns(self) -> int:
        return max((track.changes[-1].at_ns for track in self.tracks), default=0)


def nesting(columns: Columns) -> Nesting:
    """Empty where the trace holds neither the host's events nor the device's."""
    host = columns.of_category(*HOST_CATEGORIES)
    device = columns.of_category(*DEVICE_CATEGORIES)
    known: dict[Frame, int] = {}  # each once
    numbers = [known.setdefault(frame_of(name), len(known)) for name in columns.names]
    of_name = np.array(numbers, np.int64)
    zero = int(columns.start_ns[host | device].min(initial=_NEVER))
    tracks = []
    for name, events in (*_threads(columns, host), *_streams(columns, device)):
        changes = _changes(columns, events, of_name, zero)
        tracks.append(Track(name, tuple(changes)))
    return Nesting(tuple(known), tuple(tracks))


def frame_of(name: str) -> Frame:
    found = _PYTHON_FUNCTION.fullmatch(name)
    if found is None:
        return Frame(name)
    return Frame(found["name"], found["file"], int(found["line"]))


def _threads(columns: Columns, host: Mask) -> Iterator[tuple[str, Indices]]:
    """Name and events of each, the one that takes the steps first."""
    marks = host & columns.named(STEP_PREFIX)
    stepping = set(columns.thread[marks].tolist())
    numbers = threads_of(columns, np.flatnonzero(host))
    for number in sorted(numbers, key=lambda one: (one not in stepping, _sortable(columns, one))):
        process, thread = columns.threads[number]
        name = f"thread {thread} of process {process}"
        if number in stepping:
            name += " (takes the steps)"
        yield name, np.flatnonzero(host & (columns.thread == number))


def _streams(columns: Columns, device: Mask) -> Iterator[tuple[str, Indices]]:
    """Name and events of each. A stream's events may stand in rows of several names; two devices
    have a stream 7."""
    threads = columns.thread[device].tolist()
    streams = columns.stream[device].tolist()
    rows = set(zip(threads, streams, strict=True))
    for row, stream in sorted(rows, key=lambda one: (_sortable(columns, one[0]), one[1])):
        process, number = columns.threads[row]
        if stream != NONE:
            number = stream
        own = device & (columns.thread == row) & (columns.stream == stream)
        yield f"stream {number} of device {process}", np.flatnonzero(own)


def _sortable(columns: Columns, row: int) -> Any:
    """Process and thread: numbers among themselves, before names."""
    return [(isinstance(one, str), one) for one in columns.threads[row]]


def _changes(columns: Columns, events: Indices, of_name: Numbers, zero_ns: int) -> Iterator[Change]:
    events = events[_outer_first(intervals_of(columns, events))]
    frames = of_name[columns.name[events]].tolist()
    starts = (columns.start_ns[events] - zero_ns).tolist()
    ends = (columns.end_ns[events] - zero_ns).tolist()
    open_now: list[int] = []  # the innermost last
    earliest = [_NEVER]  # for each of them, the first end among it and all outside it

    def push(event: int) -> None:
        open_now.append(event)
        earliest.append(min(ends[event], earliest[-1]))

    def close(until: int) -> Iterator[Change]:
        """Whatever ends by then, in the order of its end."""
        while open_now and earliest[-1] <= until:
            at = earliest[-1]
            again = []
            while open_now and earliest[-1] <= at:
                earliest.pop()
                event = open_now.pop()
                yield Change(at, False, frames[event])
                if ends[event] > at:  # it began inside one that ends before it
                    again.append(event)
            for event in reversed(again):
                push(event)
                yield Change(at, True, frames[event])

    for index, start in enumerate(starts):
        yield from close(start)
        push(index)
        yield Change(start, True, frames[index])
    yield from close(_NEVER)


def _outer_first(intervals: Intervals) -> Indices:
    """Order them by start. Of two that start together the longer one is the outer one; of two that
    are alike the one that stands first."""
    starts = intervals[:, 0]
    ends = intervals[:, 1]
    return np.lexsort((-ends, starts))


PRUNED_BELOW = 0.0005  # share of the steps' time; doubled until the tree has MOST_NODES or fewer
MOST_NODES = 1_000
TOP_FUNCTIONS = 40
# of the thread that takes the steps: as many steps as have them; two microseconds each
MOST_EVENTS = 500_000
PYTHON = "python_function"
OTHER = "(other)"

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_BINDINGS = re.compile(r"pybind11_builtins\.\w+")  # pybind11's name of itself, with its compiler's
_OPERATOR = re.compile(r"\w+::\w+(\.\w+)?")  # of the dispatcher; what it calls is its own business
_REGIONS = ("Torch-Compiled Region", "## Call CompiledFxGraph", "CompiledFunction")
# Of a Python function by its file, first match wins; else it is the program's.
_PYTHON_KINDS = {
    "profiler": re.compile(
        r"(^|/)(torch/profiler/|torch/autograd/profiler\.py|kgprof/(record|lab)/"
        r"|kgprof/workloads/(loading|programs|user|protocol|backend)\.py)"  # around the workload
    ),
    "generated": re.compile(r"/[a-z2-7]{2}/c[a-z2-7]{30,}\.py$"),  # Inductor's cache
    "torch": re.compile(r"(^|/)(torch|triton|functorch)/"),
}
# the loop of STACK; the first is its place in older Recordings
_LOOP = ("_run", ("kgprof/record/torch_profiler.py", "kgprof/record/passes/torch_profiler.py"))

Key = tuple[str, str, int, str]  # name, file, line, kind


@m.skippable
def shown(run: RunEvidence) -> m.FlameGraph | m.Skipped:
    """From STACK; of a trace that was taken in, from the one whose kernels are shown, which may
    hold stacks."""
    name = m.PassName.STACK
    if run.whole.recording.header.plan.trace_files:
        name = m.known(run.once(kernels.shown)).measured_in
    return flame_graph(m.known(run.trace(name)).columns, measured_in=name)


def flame_graph(columns: Columns, *, measured_in: m.PassName) -> m.FlameGraph | m.Skipped:
    """Skipped where the trace holds no Python functions, or its steps no time."""
    if not columns.of_category(PYTHON).any():
        return m.Skipped("its trace has no Python functions because it was recorded without stacks")
    thread, windows, per = _windows(columns)
    host = columns.of_category(*HOST_CATEGORIES) & (columns.thread == thread)
    events = np.flatnonzero(host & ~columns.named(STEP_PREFIX))
    intervals = intervals_of(columns, events)
    taken = _within_most(windows, intervals)
    named, keys = _keys(columns, events)
    tree = _Tree(per, keys)
    for window in taken:
        inside = window.touches(intervals)
        if per == "step":  # without what is open all the while
            begins = intervals[:, 0] > window.start_ns
            inside &= begins | (intervals[:, 1] < window.end_ns)
        tree.add_step(window, intervals[inside], named[inside])
    if not any(node.self_ns for node in tree.nodes):
        return m.Skipped("its steps have no duration")
    elsewhere_ns = _elsewhere_ns(columns, thread, taken)
    graph = _graph(tree, measured_in, len(taken), elsewhere_ns)
    if len(taken) == len(windows):
        return graph
    note = f"the first {len(taken):,} of {plural(len(windows), per)}"
    return replace(graph, notes=(note,))


def _windows(columns: Columns) -> tuple[int, Sequence[Window], str]:
    """The thread that takes the steps, and when they were; where none is marked, all of the thread
    with most Python."""
    marks = step_events(columns)
    if len(marks):
        thread = int(np.bincount(columns.thread[marks]).argmax())
        steps = intervals_of(columns, marks[columns.thread[marks] == thread])
        return thread, [*map(window_of, steps)], "step"
    python = columns.of_category(PYTHON)
    thread = int(np.bincount(columns.thread[python]).argmax())
    host = columns.of_category(*HOST_CATEGORIES) & (columns.thread == thread)
    return thread, [window_of(intervals_of(columns, host))], "window"


def _within_most(windows: Sequence[Window], intervals: Intervals) -> Sequence[Window]:
    """The first ones, together with MOST_EVENTS or fewer, and one at least."""
    starts = np.sort(intervals[:, 0])
    begun = np.searchsorted(starts, [(window.start_ns, window.end_ns) for window in windows])
    numbers = np.cumsum(begun[:, 1] - begun[:, 0])
    fitting = int((numbers <= MOST_EVENTS).sum())
    return windows[: max(1, fitting)]


def _elsewhere_ns(columns: Columns, thread: int, windows: Sequence[Window]) -> int:
    """In which other threads were in operators, each thread's counted once."""
    others = columns.of_category("cpu_op") & (columns.thread != thread)
    total_ns = 0
    for other in threads_of(columns, np.flatnonzero(others)):
        own = intervals_of(columns, others & (columns.thread == other))
        total_ns += sum(union_ns(window.clip(own)) for window in windows)
    return total_ns


def _keys(columns: Columns, events: Indices) -> tuple[Numbers, Mapping[int, Key]]:
    """One number for the category and the name of each event, and what each number is; np.unique
    would sort as many pairs as there are events."""
    categories = columns.category[events].astype(np.int64)
    named = categories * len(columns.names) + columns.name[events]
    keys = {}
    for number in np.flatnonzero(np.bincount(named)).tolist():
        category, name = divmod(number, len(columns.names))
        keys[number] = _key(columns.categories[category], columns.names[name])
    return named, keys


def _key(category: str, name: str) -> Key:
    if category == PYTHON:
        return _python_key(name)
    kind = "operator"
    if category in LAUNCH_CATEGORIES:
        kind = "call"
    elif name.startswith(_REGIONS):
        kind = "region"
    elif category == "user_annotation":
        kind = "span"
    return name, "", 0, kind


def _python_key(name: str) -> Key:
    frame = frame_of(name)
    if frame.line is not None:
        kinds = (kind for kind, files in _PYTHON_KINDS.items() if files.search(frame.file))
        return frame.name, frame.file, frame.line, next(kinds, "python")
    kind = "builtin"
    if name.startswith("nn.Module: "):
        kind = "module"
    without_address = _ADDRESS.sub("", name)
    return _BINDINGS.sub("pybind11", without_address), "", 0, kind


@dataclass(eq=False, slots=True)
class _Node:
    """A frame in one place of the tree, over all steps. The totals are those of all below it too,
    once they are added up."""

    key: Key
    self_ns: int = 0
    calls: int = 0
    total_ns: int = 0
    total_calls: int = 0
    children: dict[Key, "_Node"] = field(default_factory=dict)


class _Tree:
    """``nodes``: the step, then the others; parents come before their children. ``keys``: of all
    that may be in it, by their numbers."""

    def __init__(self, root: str, keys: Mapping[int, Key]) -> None:
        self.keys = keys
        self.operators = set[int]()
        self.dispatched = set[int]()
        self.loop = set[int]()
        for number, (name, file, _, kind) in keys.items():
            if kind == "operator":
                self.operators.add(number)
                if _OPERATOR.fullmatch(name):
                    self.dispatched.add(number)
            elif name == _LOOP[0] and file.endswith(_LOOP[1]):
                self.loop.add(number)
        self.nodes = [_Node((root, "", 0, "step"))]

    def add_step(self, window: Window, intervals: Intervals, named: Numbers) -> None:
        """Add the events that are in ``window``; ``named``: the number of each one's key."""
        order = _outer_first(intervals)
        inside = window.clip(intervals[order]).tolist()
        above = self.nodes[0]
        above.self_ns += window.duration_ns
        above.calls += 1
        # What is open around the innermost; the step itself is never closed.
        outer: list[tuple[_Node, int, bool]] = []
        open_until = window.end_ns
        is_dispatched = False
        for (start, end), number in zip(inside, named[order].tolist(), strict=True):
            while outer and open_until <= start:
                above, open_until, is_dispatched = outer.pop()
            # An operator that an operator of the dispatcher calls is a part of it. The loop around
            # the steps, kgprof's, begins in the first of them and not before it.
            if number in self.loop or (is_dispatched and number in self.operators):
                continue
            key = self.keys[number]
            node = above.children.get(key)
            if node is None:
                node = _Node(key)
                above.children[key] = node
                self.nodes.append(node)
            outer.append((above, open_until, is_dispatched))
            # Kineto rounds, and mixes clocks: one that goes on beyond what it began in is cut
            # there.
            open_until = min(end, open_until)
            is_dispatched = number in self.dispatched
            lasted_ns = open_until - start
            node.calls += 1
            node.self_ns += lasted_ns
            above.self_ns -= lasted_ns
            above = node

    def add_up(self) -> None:
        for node in reversed(self.nodes):
            below = node.children.values()
            node.total_ns = node.self_ns + sum(child.total_ns for child in below)
            node.total_calls = node.calls + sum(child.total_calls for child in below)


class Frames:
    """Each name and each frame once, in the order in which they come."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {"": 0}
        self.frames: dict[m.StackFrame, int] = {}

    def index(self, name: str, file: str, line: int, kind: str) -> int:
        names = self.names
        number = names.setdefault(name, len(names))
        of_file = names.setdefault(file, len(names))
        frame = m.StackFrame(number, of_file, line, kind)
        return self.frames.setdefault(frame, len(self.frames))


def _graph(tree: _Tree, measured_in: m.PassName, steps: int, other_threads_ns: int) -> m.FlameGraph:
    tree.add_up()
    step = tree.nodes[0]
    below = PRUNED_BELOW
    while len(kept := _pruned(step, below * step.total_ns)) > MOST_NODES:
        below *= 2
    parents, nodes = zip(*kept, strict=True)
    others_ns = [node.self_ns for node in nodes if node.key == _OTHERS]
    frames = Frames()
    numbers = tuple(frames.index(*node.key) for node in nodes)
    functions = _functions(step)
    largest = sorted(functions, key=lambda key: (-functions[key][0], key))
    top = []
    for key in largest[:TOP_FUNCTIONS]:
        number = frames.index(*key)
        top.append(m.StackFunction(number, *functions[key]))
    return m.FlameGraph(
        measured_in=measured_in,
        steps=steps,
        per=step.key[0],
        names=tuple(frames.names),
        frames=tuple(frames.frames),
        parent=parents,
        frame=numbers,
        self_ns=tuple(node.self_ns for node in nodes),
        calls=tuple(node.calls for node in nodes),
        pruned_below=below,
        pruned_nodes=len(tree.nodes) - len(kept) + len(others_ns),
        pruned_ns=sum(others_ns),
        top=tuple(top),
        functions=len(functions),
        other_threads_ns=other_threads_ns,
    )


_OTHERS: Key = (OTHER, "", 0, "pruned")


def _pruned(step: _Node, least_ns: float) -> list[tuple[int, _Node]]:
    """The nodes with at least so much time, the larger of two children first, and one for the
    others; before each its parent's place among them."""
    kept = list[tuple[int, _Node]]()
    waiting = [(-1, step)]
    while waiting:
        parent, node = waiting.pop()
        here = len(kept)
        kept.append((parent, node))
        others = _Node(_OTHERS)
        larger = []
        # what waits last is next
        for child in sorted(node.children.values(), key=lambda child: child.total_ns):
            if child.total_ns >= least_ns:
                larger.append((here, child))
                continue
            others.self_ns += child.total_ns
            others.calls += child.total_calls
        if len(larger) < len(node.children):
            waiting.append((here, others))
        waiting += larger
    return kept


def _functions(step: _Node) -> dict[Key, tuple[int, int, int]]:
    """Self time, total time and calls of each function, operator or span over the whole tree; the
    step is none."""
    self_ns = Counter[Key]()
    total_ns = Counter[Key]()
    calls = Counter[Key]()
    open_above = Counter[Key]()
    waiting = [(child, True) for child in step.children.values()]
    while waiting:
        node, enters = waiting.pop()
        key = node.key
        if not enters:
            open_above[key] -= 1
            continue
        self_ns[key] += node.self_ns
        calls[key] += node.calls
        if not open_above[key]:
            total_ns[key] += node.total_ns
        open_above[key] += 1
        waiting.append((node, False))
        waiting += [(child, True) for child in node.children.values()]
    return {key: (self_ns[key], total_ns[key], calls[key]) for key in calls}
