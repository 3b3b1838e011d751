"""The host's stacks of each run as a flame graph that hangs from the step, with the functions that took longest."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kgprof import model as m
from kgprof.render.icicle import Icicle, Item, icicle
from kgprof.render.limits import Limits, anchor, run_name
from kgprof.render.quantity import figure, milliseconds, percent
from kgprof.render.table import Table, plain
from kgprof.render.visible import one_line
from kgprof.wording import plural, relative

NAME = 100  # characters of a name in a box's title, and of its place
_LONGEST = 3  # functions that the sentence above the drawing names
_SHORT = re.compile(r"(?:<built-in (?:method|function) |nn\.Module: )([^ >]*)")
_WORKLOADS = re.compile(r"(^|/)kgprof/workloads/")  # kgprof's own around the workload: what they call is not kgprof's

# What a frame is: its class is f-KIND. Also the order of the legend.
KINDS: dict[str, tuple[str, str]] = {
    "python": ("Python", "a function of the program, or of a library that is not torch"),
    "torch": ("torch's Python", "torch, Triton"),
    "generated": ("generated code", "Inductor's Python around the kernels"),
    "module": ("module", "the call of an nn.Module"),
    "builtin": ("C function", "called from Python"),
    "operator": ("operator", "ATen's and the compiler's own; operators that they call are part of them"),
    "region": ("compiled region", "one call of a compiled function, or of a graph in it"),
    "span": ("span", "a record_function"),
    "call": ("CUDA call", "of the runtime or the driver"),
    "profiler": ("the recorder's own", "kgprof's and torch.profiler's"),
    "pruned": ("(other)", "what is too small for a row of its own"),
    "step": ("step", "the whole of it"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FlameChart:
    anchor: str
    run: str
    caption: str
    summary: str  # one sentence; also what the drawing is called
    drawing: Icicle | None
    missing: str  # why there is no drawing
    legend: tuple[tuple[str, str, str], ...]  # kind, name, meaning
    notes: tuple[str, ...]
    table: Table
    table_rest: str


def drawable(runs: Sequence[m.RunReport]) -> list[tuple[int, m.RunReport, m.FlameGraph]]:
    return [(index, run, run.flame) for index, run in enumerate(runs) if isinstance(run.flame, m.FlameGraph)]


def flame_charts(runs: Sequence[m.RunReport], root: str, limits: Limits) -> tuple[FlameChart, ...]:
    graphs = drawable(runs)
    trees = min(len(graphs), limits.flames)
    charts = []
    for place, (index, run, flame) in enumerate(graphs):
        drawing = icicle(_items(flame, root), limits, trees=trees) if place < trees else None
        present = {kind_of(frame) for frame in flame.frames} - {"step"}
        time = milliseconds(_whole(flame) / flame.steps / 1e3)
        chart = FlameChart(
            anchor=anchor(index),
            run=run_name(run, limits),
            caption=f"{time} ms a {_per(flame)} over {plural(flame.steps, _per(flame))}, "
            f"{flame.measured_in.upper()} pass",
            summary=_summary(flame, limits),
            drawing=drawing,
            missing="" if drawing else "left out of this page to keep it small; report.json holds it",
            legend=tuple((kind, name, meaning) for kind, (name, meaning) in KINDS.items() if kind in present),
            notes=tuple(_notes(flame, drawing, limits)),
            table=_table(flame, root, limits),
            table_rest=_rest(flame, limits),
        )
        charts.append(chart)
    return tuple(charts)


def kind_of(frame: m.StackFrame) -> str:
    return frame.kind if frame.kind in KINDS else "python"


def place_of(file: str, line: int, root: str) -> str:
    path = relative(file, root)
    return f"{path}:{line}" if path and line else path


def short_name(name: str) -> str:
    """What fits into a box: the kind says the rest."""
    shorter = _SHORT.match(name)
    return shorter[1] if shorter and shorter[1] else name


def _per(flame: m.FlameGraph) -> str:
    return "window" if flame.per == "window" else "step"


def _whole(flame: m.FlameGraph) -> int:
    """Nanoseconds of all steps."""
    return sum(flame.self_ns) or 1


def _items(flame: m.FlameGraph, root: str) -> tuple[Item, ...]:
    """The nodes as boxes. A title has two lines: the name; what it is, where, and how long it took."""
    per, whole, names, titles = _per(flame), _whole(flame), [], []
    for frame in flame.frames:
        name, place = flame.names[frame.name], place_of(flame.names[frame.file], frame.line, root)
        names.append(one_line(name, NAME))
        titles.append(f"{names[-1]}\n{KINDS[kind_of(frame)][0]}{f', {one_line(place, NAME)}' if place else ''}")
    items = []
    for node, (at, total_ns) in enumerate(zip(flame.frame, flame.total_ns, strict=True)):
        calls = figure(flame.calls[node] / flame.steps)
        own, total = (milliseconds(ns / flame.steps / 1e3) for ns in (flame.self_ns[node], total_ns))
        times = f"{total} ms a {per}, {percent(total_ns / whole)}; itself {own} ms; called {calls} times"
        item = Item(
            parent=flame.parent[node],
            width=total_ns,
            style=f"f-{kind_of(flame.frames[at])}",
            label=short_name(names[at]),
            title=f"{titles[at]}; {times}",
        )
        items.append(item)
    return tuple(items)


# ---------------------------------------------------------------- sentences and the table


def _summary(flame: m.FlameGraph, limits: Limits) -> str:
    """Which functions took longest, and how long the recorder's frames took with what they called."""
    whole = _whole(flame)
    longest = [
        f"{one_line(flame.names[flame.frames[row.frame].name], min(limits.name, NAME))} "
        f"({percent(row.self_ns / whole)})"
        for row in flame.top[:_LONGEST]
        if row.self_ns
    ]
    lead = f"Most time of their own took {', '.join(longest)}" if longest else "No function took any time of its own"
    own = [False] * len(flame.parent)
    for node, frame in enumerate(flame.frame):
        above = flame.parent[node]
        own[node] = flame.frames[frame].kind == "profiler" or (
            above >= 0 and own[above] and not _WORKLOADS.search(flame.names[flame.frames[flame.frame[above]].file])
        )
    recorders = sum(ns for ns, is_own in zip(flame.self_ns, own, strict=True) if is_own)
    return f"{lead}; the recorder's own frames took {percent(recorders / whole)}"


def _notes(flame: m.FlameGraph, drawing: Icicle | None, limits: Limits) -> Iterator[str]:
    yield from (f"Of a longer recording: {one_line(note, limits.name)}" for note in flame.notes)
    if flame.pruned_nodes:
        yield (
            f"{plural(flame.pruned_nodes, 'frame')} with less than {100 * flame.pruned_below:.2g} % each, "
            f"{percent(flame.pruned_ns / _whole(flame))} of the time in all, stand together as (other)"
        )
    if drawing and drawing.left_out:
        yield f"Not drawn: {' and '.join(drawing.left_out)}; report.json holds all of it"
    if flame.other_threads_ns:
        yield (
            f"Other threads ran operators for {milliseconds(flame.other_threads_ns / flame.steps / 1e3)} ms a "
            f"{_per(flame)}, which are not drawn"
        )


def _table(flame: m.FlameGraph, root: str, limits: Limits) -> Table:
    per, rows = _per(flame), []
    for row in flame.top[: limits.host_rows]:
        frame = flame.frames[row.frame]
        where = place_of(flame.names[frame.file], frame.line, root) or KINDS[kind_of(frame)][0]
        cells = (
            one_line(f"{flame.names[frame.name]} ({where})", limits.name),
            figure(row.self_ns / flame.steps / 1e3),
            percent(row.self_ns / _whole(flame)),
            figure(row.total_ns / flame.steps / 1e3),
            figure(row.calls / flame.steps),
        )
        rows.append(cells)
    headings = ("function", f"self \N{MICRO SIGN}s/{per}", "share", "with callees", f"calls/{per}")
    return plain("Functions by their own time, STACK pass", headings, rows)


def _rest(flame: m.FlameGraph, limits: Limits) -> str:
    shown = flame.top[: limits.host_rows]
    others = flame.functions - len(shown)
    if not others:
        return ""
    remaining = _whole(flame) - flame.self_ns[0] - sum(row.self_ns for row in shown)
    time = figure(remaining / flame.steps / 1e3)
    return f"{plural(others, 'more function')}: {time} \N{MICRO SIGN}s a {_per(flame)}"
