"""Stacks read from a trace: what was open when on each thread and stream, and from it the flame
graph of the steps.

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

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from kgprof import model as m
from kgprof.measures import kernels
from kgprof.reading.evidence import RunEvidence
from kgprof.reading.kineto import NONE, Columns
from kgprof.reading.launches import DEVICE_CATEGORIES, Indices, Mask, threads_of
from kgprof.reading.timeline import (
    STEP_PREFIX,
    Window,
    intervals_of,
    step_events,
    union_ns,
    window_of,
)
from kgprof.wording import plural

# python_function: of a trace that was recorded with_stack.
HOST_CATEGORIES = ("cpu_op", "user_annotation", "cuda_runtime", "cuda_driver", "python_function")
# longer numbers are no lines
_PYTHON_FUNCTION = re.compile(r"(?P<file>.+)\((?P<line>\d{1,9})\): (?P<name>.+)")
_NEVER = 2**63 - 1
Numbers = npt.NDArray[np.int64]


class Frame(m.Model):
    """``file`` and ``line`` (from 1) of a Python function in a trace with stacks; of anything else
    there is none."""

    name: str
    file: str = ""
    line: int | None = None


class Change(m.Model):
    at_ns: int
    opens: bool  # else it closes
    frame: int  # index into ``Nesting.frames``


class Track(m.Model):
    """One thread or stream."""

    name: str
    changes: tuple[Change, ...]


class Nesting(m.Model):
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
    of_name = np.array(
        [known.setdefault(frame_of(name), len(known)) for name in columns.names], np.int64
    )
    zero = int(columns.start_ns[host | device].min(initial=_NEVER))
    tracks = tuple(
        Track(name=name, changes=tuple(_changes(columns, events, of_name, zero)))
        for name, events in (*_threads(columns, host), *_streams(columns, device))
    )
    return Nesting(frames=tuple(known), tracks=tracks)


def frame_of(name: str) -> Frame:
    found = _PYTHON_FUNCTION.fullmatch(name)
    if found is None:
        return Frame(name=name)
    return Frame(name=found["name"], file=found["file"], line=int(found["line"]))


def _threads(columns: Columns, host: Mask) -> Iterator[tuple[str, Indices]]:
    """Name and events of each, the one that takes the steps first."""
    stepping = set(columns.thread[host & columns.named(STEP_PREFIX)].tolist())
    numbers = threads_of(columns, np.flatnonzero(host))
    for number in sorted(
        numbers, key=lambda one: (one not in stepping, _sortable(*columns.threads[one]))
    ):
        process, thread = columns.threads[number]
        takes_steps = " (takes the steps)" if number in stepping else ""
        yield (
            f"thread {thread} of process {process}{takes_steps}",
            np.flatnonzero(host & (columns.thread == number)),
        )


def _streams(columns: Columns, device: Mask) -> Iterator[tuple[str, Indices]]:
    """Name and events of each. A stream's events may stand in rows of several names; two devices
    have a stream 7."""
    rows = sorted(
        set(zip(columns.thread[device].tolist(), columns.stream[device].tolist(), strict=True))
    )
    for row, stream in sorted(rows, key=lambda one: (_sortable(*columns.threads[one[0]]), one[1])):
        process, thread = columns.threads[row]
        of_device = device & (columns.thread == row) & (columns.stream == stream)
        yield (
            f"stream {thread if stream == NONE else stream} of device {process}",
            np.flatnonzero(of_device),
        )


def _sortable(process: int | str, thread: int | str) -> tuple[tuple[bool, int, str], ...]:
    """Numbers among themselves, before names."""
    return tuple(
        (isinstance(one, str), 0 if isinstance(one, str) else one, str(one))
        for one in (process, thread)
    )


def _changes(columns: Columns, events: Indices, of_name: Numbers, zero_ns: int) -> Iterator[Change]:
    # Of two that start together the longer one is the outer one; of two that are alike the one that
    # stands first.
    events = events[np.lexsort((-columns.end_ns[events], columns.start_ns[events]))]
    frames = of_name[columns.name[events]].tolist()
    starts = (columns.start_ns[events] - zero_ns).tolist()
    ends = (columns.end_ns[events] - zero_ns).tolist()
    open_now: list[int] = []  # the innermost last
    earliest: list[int] = []  # for each of them, the first end among it and all outside it

    def push(event: int) -> None:
        open_now.append(event)
        earliest.append(min(ends[event], earliest[-1]) if earliest else ends[event])

    def close(until: int) -> Iterator[Change]:
        """Whatever ends by then, in the order of its end."""
        while open_now and earliest[-1] <= until:
            at = earliest[-1]
            again = []
            while open_now and earliest[-1] <= at:
                earliest.pop()
                event = open_now.pop()
                yield Change(at_ns=at, opens=False, frame=frames[event])
                if ends[event] > at:  # it began inside one that ends before it
                    again.append(event)
            for event in reversed(again):
                push(event)
                yield Change(at_ns=at, opens=True, frame=frames[event])

    for index, start in enumerate(starts):
        yield from close(start)
        push(index)
        yield Change(at_ns=start, opens=True, frame=frames[index])
    yield from close(_NEVER)


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
_CALLS = ("cuda_runtime", "cuda_driver")

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
    host = columns.of_category(*HOST_CATEGORIES)
    thread, windows, per = _windows(columns, host)
    events = np.flatnonzero(host & (columns.thread == thread) & ~columns.named(STEP_PREFIX))
    starts = np.sort(columns.start_ns[events])
    begins = np.searchsorted(starts, [window.start_ns for window in windows])
    ends = np.searchsorted(starts, [window.end_ns for window in windows])
    taken = windows[: max(1, int((np.cumsum(ends - begins) <= MOST_EVENTS).sum()))]
    # One number for a category and a name; np.unique would sort as many pairs as there are events.
    named = columns.category[events].astype(np.int64) * len(columns.names) + columns.name[events]
    keys = {}
    for number in np.flatnonzero(np.bincount(named)).tolist():
        category, name = divmod(number, len(columns.names))
        keys[number] = _key(columns.categories[category], columns.names[name])
    tree = _Tree(per, keys)
    start = columns.start_ns[events]
    end = columns.end_ns[events]
    for window in taken:
        inside = (start < window.end_ns) & (end > window.start_ns)
        if per == "step":  # without what is open all the while
            inside &= (start > window.start_ns) | (end < window.end_ns)
        _add_step(tree, named[inside], start[inside], end[inside], window)
    if not any(tree.self_ns):
        return m.Skipped("its steps have no duration")
    # In which other threads were in operators, each thread's counted once.
    operators = np.flatnonzero(columns.of_category("cpu_op") & (columns.thread != thread))
    elsewhere_ns = 0
    for other in threads_of(columns, operators):
        own = intervals_of(columns, operators[columns.thread[operators] == other])
        elsewhere_ns += sum(union_ns(window.clip(own)) for window in taken)
    graph = _graph(tree, measured_in, len(taken), elsewhere_ns)
    if len(taken) == len(windows):
        return graph
    return replace(graph, notes=(f"the first {len(taken):,} of {plural(len(windows), per)}",))


def _windows(columns: Columns, host: Mask) -> tuple[int, tuple[Window, ...], str]:
    """The thread that takes the steps, and when they were; where none is marked, all of the thread
    with most Python."""
    marks = step_events(columns)
    if len(marks):
        thread = int(np.bincount(columns.thread[marks]).argmax())
        steps = intervals_of(columns, marks[columns.thread[marks] == thread]).tolist()
        return thread, tuple(Window(start_ns=start, end_ns=end) for start, end in steps), "step"
    python = columns.of_category(PYTHON)
    thread = int(np.bincount(columns.thread[python]).argmax())
    spans = intervals_of(columns, host & (columns.thread == thread))
    return thread, (window_of(spans),), "window"


def _key(category: str, name: str) -> Key:
    if category == PYTHON:
        frame = frame_of(name)
        if frame.line is not None:
            kind = next(
                (kind for kind, files in _PYTHON_KINDS.items() if files.search(frame.file)),
                "python",
            )
            return frame.name, frame.file, frame.line, kind
        kind = "module" if name.startswith("nn.Module: ") else "builtin"
        return _BINDINGS.sub("pybind11", _ADDRESS.sub("", name)), "", 0, kind
    if category in _CALLS:
        return name, "", 0, "call"
    if name.startswith(_REGIONS):
        return name, "", 0, "region"
    return name, "", 0, "span" if category == "user_annotation" else "operator"


class _Tree:
    """Node 0 is the step. Parents come before their children. ``keys``: of all that may be in it,
    by their numbers."""

    def __init__(self, root: str, keys: Mapping[int, Key]) -> None:
        self.keys = keys
        # An operator that an operator of the dispatcher calls is a part of it.
        self.operators = {each for each, key in keys.items() if key[3] == "operator"}
        self.dispatched = {each for each in self.operators if _OPERATOR.fullmatch(keys[each][0])}
        # The loop around the steps, kgprof's, begins in the first of them and not before it.
        self.loop = {
            each for each, key in keys.items() if key[0] == _LOOP[0] and key[1].endswith(_LOOP[1])
        }
        self.key: list[Key] = [(root, "", 0, "step")]
        self.parent, self.self_ns, self.calls = [-1], [0], [0]
        self.children: list[dict[Key, int]] = [{}]


def _add_step(
    tree: _Tree,
    named: Numbers,
    start_ns: Numbers,
    end_ns: Numbers,
    window: Window,
) -> None:
    """The events that are in ``window``; ``named``: the number of each one's key."""
    # Of two that start together the longer one is the outer one; of two that are alike the one that
    # stands first.
    order = np.lexsort((-end_ns, start_ns))
    starts = np.maximum(start_ns[order], window.start_ns).tolist()
    ends = np.minimum(end_ns[order], window.end_ns).tolist()
    operators, dispatched, loop = tree.operators, tree.dispatched, tree.loop
    children, self_ns, calls = tree.children, tree.self_ns, tree.calls
    self_ns[0] += window.duration_ns
    calls[0] += 1
    # What is open around the innermost; the step itself is never closed.
    outer: list[tuple[int, int, bool]] = []
    above, open_until, is_dispatched = 0, window.end_ns, False
    for start, end, name in zip(starts, ends, named[order].tolist(), strict=True):
        while outer and open_until <= start:
            above, open_until, is_dispatched = outer.pop()
        if (is_dispatched and name in operators) or name in loop:
            continue
        key = tree.keys[name]
        node = children[above].get(key)
        if node is None:
            node = children[above][key] = len(calls)
            tree.key.append(key)
            tree.parent.append(above)
            self_ns.append(0)
            calls.append(0)
            children.append({})
        # Kineto rounds, and mixes clocks: one that goes on beyond what it began in is cut there.
        until = min(end, open_until)
        calls[node] += 1
        self_ns[node] += until - start
        self_ns[above] -= until - start
        outer.append((above, open_until, is_dispatched))
        above, open_until, is_dispatched = node, until, name in dispatched


class Frames:
    """Each name and each frame once, in the order in which they come."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {"": 0}
        self.frames: dict[m.StackFrame, int] = {}

    def index(self, name: str, file: str, line: int, kind: str) -> int:
        numbers = [self.names.setdefault(each, len(self.names)) for each in (name, file)]
        frame = m.StackFrame(name=numbers[0], file=numbers[1], line=line, kind=kind)
        return self.frames.setdefault(frame, len(self.frames))


def _graph(tree: _Tree, measured_in: m.PassName, steps: int, other_threads_ns: int) -> m.FlameGraph:
    totals = m.with_all_below(tree.parent, tree.self_ns)
    below = PRUNED_BELOW
    while len(kept := _pruned(tree, totals, below)) > MOST_NODES:
        below *= 2
    functions = sorted(_functions(tree, totals).items(), key=lambda item: (-item[1][0], item[0]))
    parents, keys, self_ns, calls = zip(*kept, strict=True)
    frames = Frames()
    nodes = tuple(frames.index(*key) for key in keys)
    top = tuple(
        m.StackFunction(frame=frames.index(*key), self_ns=own_ns, total_ns=total_ns, calls=called)
        for key, (own_ns, total_ns, called) in functions[:TOP_FUNCTIONS]
    )
    others_ns = [ns for key, ns in zip(keys, self_ns, strict=True) if key == _OTHERS]
    return m.FlameGraph(
        measured_in=measured_in,
        steps=steps,
        per=tree.key[0][0],
        names=tuple(frames.names),
        frames=tuple(frames.frames),
        parent=parents,
        frame=nodes,
        self_ns=self_ns,
        calls=calls,
        pruned_below=below,
        pruned_nodes=len(tree.key) - len(kept) + len(others_ns),
        pruned_ns=sum(others_ns),
        top=top,
        functions=len(functions),
        other_threads_ns=other_threads_ns,
    )


_Node = tuple[int, Key, int, int]  # its parent's index among the kept ones, key, self time, calls
_OTHERS: Key = (OTHER, "", 0, "pruned")


def _pruned(tree: _Tree, totals: Sequence[int], below: float) -> list[_Node]:
    """The nodes with at least ``below`` of the whole, the larger of two children first, and one for
    the others."""
    least = below * totals[0]
    calls = m.with_all_below(tree.parent, tree.calls)
    kept: list[_Node] = []
    # the parent among the kept ones, and the nodes that stand in it as one
    waiting = [(-1, tree.key[0], [0])]
    while waiting:
        parent, key, nodes = waiting.pop()
        if key == _OTHERS:
            small_ns = sum(totals[node] for node in nodes)
            called = sum(calls[node] for node in nodes)
            kept.append((parent, key, small_ns, called))
            continue
        (node,), here = nodes, len(kept)
        kept.append((parent, key, tree.self_ns[node], tree.calls[node]))
        children = sorted(tree.children[node].values(), key=lambda child: (totals[child], child))
        if small := [child for child in children if totals[child] < least]:
            waiting.append((here, _OTHERS, small))
        waiting += [
            (here, tree.key[child], [child]) for child in children if totals[child] >= least
        ]
    return kept


def _functions(tree: _Tree, totals: Sequence[int]) -> dict[Key, tuple[int, int, int]]:
    """Self time, total time and calls of each function, operator or span over the whole tree; the
    step is none."""
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
