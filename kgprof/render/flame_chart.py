"""The host's stacks of each run as a flame graph that hangs from the step, with the functions that took longest."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kgprof import model as m
from kgprof.render.icicle import Icicle, Item, icicle
from kgprof.render.limits import Limits, anchor, run_name
from kgprof.render.quantity import figure, milliseconds, percent
from kgprof.render.table import Table, plain
from kgprof.render.visible import one_line
from kgprof.wording import plural, relative

NAME = 100  # characters of a name in a box's title, and of its place
_SAID = 3  # functions that the sentence above the drawing names
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
    found = drawable(runs)
    trees = min(len(found), limits.flames)
    return tuple(
        _chart(index, run, flame, root, limits, trees=trees if place < trees else 0)
        for place, (index, run, flame) in enumerate(found)
    )


def _chart(index: int, run: m.RunReport, flame: m.FlameGraph, root: str, limits: Limits, *, trees: int) -> FlameChart:
    drawing = icicle(items(flame, root), limits, trees=trees) if trees else None
    shown = flame.top[: limits.host_rows]
    return FlameChart(
        anchor=anchor(index),
        run=run_name(run, limits),
        caption=f"{milliseconds(_whole(flame) / flame.steps / 1e3)} ms a {per(flame)} over "
        f"{plural(flame.steps, per(flame))}, {flame.measured_in.upper()} pass",
        summary=_summary(flame, limits),
        drawing=drawing,
        missing="" if drawing else "left out of this page to keep it small; report.json holds it",
        legend=_legend(flame),
        notes=tuple(_notes(flame, drawing, limits)),
        table=plain(
            f"Functions of {run.key.slug} by their own time, STACK pass",
            ("function", f"self \N{MICRO SIGN}s/{per(flame)}", "share", "with callees", f"calls/{per(flame)}"),
            tuple(_row(flame, place, root, limits) for place in range(len(shown))),
        ),
        table_rest=_rest(flame, len(shown)),
    )


# ---------------------------------------------------------------- boxes


def items(flame: m.FlameGraph, root: str) -> tuple[Item, ...]:
    totals, whole = flame.total_ns, _whole(flame)
    titles = [_title_of(flame, frame, root) for frame in flame.frames]
    return tuple(
        Item(
            parent=flame.parent[node],
            width=totals[node],
            style=f"f-{kind_of(flame.frames[frame])}",
            label=short_name(titles[frame].partition("\n")[0]),
            title=f"{titles[frame]}; {_times(flame, node, totals[node], whole)}",
        )
        for node, frame in enumerate(flame.frame)
    )


def short_name(name: str) -> str:
    """What fits into a box: the kind says the rest."""
    found = _SHORT.match(name)
    return found[1] if found and found[1] else name


def per(flame: m.FlameGraph) -> str:
    return "window" if flame.per == "window" else "step"


def kind_of(frame: m.StackFrame) -> str:
    return frame.kind if frame.kind in KINDS else "python"


def _title_of(flame: m.FlameGraph, frame: m.StackFrame, root: str) -> str:
    kind = KINDS[kind_of(frame)][0]
    return titled(flame.names[frame.name], kind, place_of(flame.names[frame.file], frame.line, root))


def titled(name: str, kind: str, place: str) -> str:
    """Two lines: the name; what it is, and where."""
    return f"{one_line(name, NAME)}\n{kind}{f', {one_line(place, NAME)}' if place else ''}"


def place_of(file: str, line: int, root: str) -> str:
    path = relative(file, root)
    return f"{path}:{line}" if path and line else path


def _times(flame: m.FlameGraph, node: int, total_ns: int, whole_ns: int) -> str:
    calls = figure(flame.calls[node] / flame.steps)
    own, total = (milliseconds(ns / flame.steps / 1e3) for ns in (flame.self_ns[node], total_ns))
    return f"{total} ms a {per(flame)}, {percent(total_ns / whole_ns)}; itself {own} ms; called {calls} times"


def _whole(flame: m.FlameGraph) -> int:
    return sum(flame.self_ns) or 1


def _legend(flame: m.FlameGraph) -> tuple[tuple[str, str, str], ...]:
    present = {kind_of(frame) for frame in flame.frames} - {"step"}
    return tuple((kind, name, meaning) for kind, (name, meaning) in KINDS.items() if kind in present)


# ---------------------------------------------------------------- sentences and the table


def _summary(flame: m.FlameGraph, limits: Limits) -> str:
    whole = _whole(flame)
    longest = [
        f"{one_line(flame.names[flame.frames[row.frame].name], min(limits.name, NAME))} "
        f"({percent(row.self_ns / whole)})"
        for row in flame.top[:_SAID]
        if row.self_ns
    ]
    said = f"Most time of their own took {', '.join(longest)}" if longest else "No function took any time of its own"
    return f"{said}; the recorder's own frames took {percent(_recorders(flame) / whole)}"


def _recorders(flame: m.FlameGraph) -> int:
    """Nanoseconds of kgprof's and torch.profiler's frames, with what they called."""
    own = [False] * len(flame.parent)
    for node, frame in enumerate(flame.frame):
        known, above = flame.frames[frame], flame.parent[node]
        own[node] = known.kind == "profiler" or (
            above >= 0 and own[above] and not _WORKLOADS.search(flame.names[flame.frames[flame.frame[above]].file])
        )
    return sum(ns for ns, is_own in zip(flame.self_ns, own, strict=True) if is_own)


def _notes(flame: m.FlameGraph, drawing: Icicle | None, limits: Limits) -> list[str]:
    said = [f"Of a longer recording: {one_line(note, limits.name)}" for note in flame.notes]
    if flame.pruned_nodes:
        said.append(
            f"{plural(flame.pruned_nodes, 'frame')} with less than {100 * flame.pruned_below:.2g} % each, "
            f"{percent(flame.pruned_ns / _whole(flame))} of the time in all, stand together as (other)"
        )
    if drawing and drawing.left_out:
        said.append(f"Not drawn: {' and '.join(drawing.left_out)}; report.json holds all of it")
    if flame.other_threads_ns:
        said.append(
            f"Other threads ran operators for {milliseconds(flame.other_threads_ns / flame.steps / 1e3)} ms a "
            f"{per(flame)}, which are not drawn"
        )
    return said


def _row(flame: m.FlameGraph, place: int, root: str, limits: Limits) -> tuple[str, ...]:
    row, whole = flame.top[place], _whole(flame)
    frame = flame.frames[row.frame]
    where = place_of(flame.names[frame.file], frame.line, root)
    name = flame.names[frame.name]
    return (
        one_line(f"{name} ({where})" if where else f"{name} ({KINDS[kind_of(frame)][0]})", limits.name),
        figure(row.self_ns / flame.steps / 1e3),
        percent(row.self_ns / whole),
        figure(row.total_ns / flame.steps / 1e3),
        figure(row.calls / flame.steps),
    )


def _rest(flame: m.FlameGraph, shown: int) -> str:
    others = flame.functions - shown
    if not others:
        return ""
    remaining = _whole(flame) - flame.self_ns[0] - sum(row.self_ns for row in flame.top[:shown])
    return f"{plural(others, 'more function')}: {figure(remaining / flame.steps / 1e3)} \N{MICRO SIGN}s a {per(flame)}"
