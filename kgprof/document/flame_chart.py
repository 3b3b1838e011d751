"""The host's stacks of each run as a flame graph that hangs from the step, with the functions that
took longest; and those of base and head in one: how much each took longer, as a sign and a number
and a colour.

Lengths across are per cent, so that the same drawing fits a telephone and a wall. A box is as high
as a finger needs, because a script makes them react; without one each still says what it is, in its
title.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from kgprof import model as m
from kgprof.document.breakdown import legend_of
from kgprof.document.escaping import one_line
from kgprof.document.limits import Limits, importance
from kgprof.document.quantity import MINUS, figure, milliseconds, of_width, percent, rounded, sign
from kgprof.document.run_parts import having, name_of, run_part
from kgprof.document.table import Block, Drawing, Fold, Shown, Table, plain
from kgprof.wording import clause, plural, relative

ROW = 24  # pixels
NARROWEST = 0.0015  # of the width: two pixels of a wide screen
_BOXES = 600  # of a page, shared by the trees that are drawn
_MOST_BOXES = 300  # of one of them
_LABELLED = 0.025  # of the width: with a name in it on a wide screen
_WITH_FILE = 0.12  # and with its place
_WIDE = 0.09  # and with a name on a telephone


class Item(m.Model, kw_only=False):
    """A node; ``title`` is its name, and on further lines what it is and how long it took."""

    parent: int  # index, and smaller than its own; -1 of the first
    width: float  # with all below it, in any unit
    style: str
    label: str
    title: str
    file: str = ""  # its place in short: "policy.py:77"


class Icicle(Drawing):
    label: str = ""  # what the drawing is called
    height: int
    boxes: Sequence[Shown]
    left_out: Sequence[str]  # in words


def icicle(items: Sequence[Item], limits: Limits, *, trees: int = 1, label: str = "") -> Icicle:
    """One of ``trees`` that the page draws. Children stand side by side from their parent's start
    on; what is free at its end is the parent's own."""
    whole = items[0].width or 1.0
    depth: list[int] = []
    starts: list[float] = []
    free: list[float] = []  # where the next child of each begins
    for item in items:
        row, start = 0, 0.0
        if item.parent >= 0:
            row, start = depth[item.parent] + 1, free[item.parent]
            free[item.parent] += item.width
        depth.append(row)
        starts.append(start)
        free.append(start)
    shallow = [node for node in range(len(items)) if depth[node] < limits.flame_rows]
    most = min(_MOST_BOXES, max(1, _BOXES // max(1, trees)))
    widest = sorted((items[node].width / whole for node in shallow), reverse=True)
    # Of those as wide as the first that there is no room for none is drawn: a parent is never
    # narrower than its child.
    least = max([NARROWEST, *(share * 1.000001 for share in widest[most : most + 1])])
    boxes = []
    for node in shallow:
        item = items[node]
        share = item.width / whole
        if share >= least:
            box = Shown(
                style=item.style,
                x=of_width(starts[node] / whole),
                y=ROW * depth[node],
                width=of_width(share),
                label="",
                file="",
                title=item.title,
            )
            if share < _WIDE:
                box["style"] += " narrow"
            if share >= _LABELLED:
                box["label"] = item.label
            if share >= _WITH_FILE:
                box["file"] = item.file
            boxes.append(box)
    left_out = []
    if deeper := len(items) - len(shallow):
        left_out.append(f"{plural(deeper, 'frame')} below the first {limits.flame_rows} rows")
    if narrower := len(shallow) - len(boxes):
        width = f"{100 * least:.2g} % of the step"
        left_out.append(f"{plural(narrower, 'frame')} narrower than {width}")
    height = ROW + max((box["y"] for box in boxes), default=0)
    return Icicle(label=label, height=height, boxes=boxes, left_out=left_out)


_NAME = 100  # characters of a name in a box's title, and of its place
_FILE = 40  # of its file's name
_LONGEST = 3  # functions that the sentence above the drawing names
_NO_ROOM = "No flame graph: left out to keep the page under 1 MB (it is in report.json)."
_SHORT = re.compile(r"(?:<built-in (?:method|function) |nn\.Module: )([^ >]*)")
# kgprof's own around the workload: what they call is not kgprof's
_WORKLOADS = re.compile(r"(^|/)kgprof/workloads/")

# What a frame is: its class is f-KIND. Also the order of the legend.
KINDS: dict[str, tuple[str, str]] = {
    "python": ("Python", "a function of the program, or of a library that is not torch"),
    "torch": ("torch's Python", "torch, Triton"),
    "generated": ("generated code", "Inductor's Python around the kernels"),
    "module": ("module", "the call of an nn.Module"),
    "builtin": ("C function", "called from Python"),
    "operator": (
        "operator",
        "ATen's and the compiler's own; operators that they call are part of them",
    ),
    "region": ("compiled region", "one call of a compiled function, or of a graph in it"),
    "span": ("span", "a record_function"),
    "call": ("CUDA call", "of the runtime or the driver"),
    "profiler": ("kgprof overhead", "kgprof and torch.profiler"),
    "pruned": ("(other)", "what is too small for a row of its own"),
    "step": ("step", "the whole of it"),
}


def drawable(runs: m.Runs) -> list[tuple[int, m.RunReport, m.FlameGraph]]:
    return having(runs, "flame", m.FlameGraph)


def flame_folds(runs: m.Runs, root: str, limits: Limits) -> Iterator[Fold]:
    graphs = drawable(runs)
    drawable_runs = {index for index, *_ in graphs}
    first = [index for index in importance(runs) if index in drawable_runs][: limits.flames]
    for index, run, flame in graphs:
        name = name_of(run.key)
        frames = _Frames(flame, root, limits)
        summary = _summary(flame, frames)
        per = "step"
        if flame.per == "window":
            per = "window"
        blocks: list[Block] = [_NO_ROOM]
        drawing = None
        if index in first:
            label = f"CPU stacks of {name}. {summary}"
            drawing = icicle(_items(flame, frames, per), limits, trees=len(first), label=label)
            present = {*map(frames.kind, range(len(flame.frames)))} - {"step"}
            entries = [(kind, *words) for kind, words in KINDS.items() if kind in present]
            blocks = [legend_of("f", *entries), drawing]
        blocks += [f"{note}." for note in _notes(flame, per, drawing)]
        if limits.host_rows and flame.top:
            functions = [*_functions(flame, frames, per, name)]
            blocks.append(Fold("Functions by self time, as a table", functions))
        time = milliseconds(_whole(flame) / flame.steps / 1e3)
        caption = (
            f"{time} ms per {per} over {plural(flame.steps, per)}, {flame.measured_in.upper()} pass"
        )
        yield run_part(index, run, blocks, caption, "flame", f"{summary}.")


def _undrawn(drawing: Icicle) -> str:
    return f"Not drawn: {' and '.join(drawing.left_out)}; report.json holds all of it"


# ---------------------------------------------------------------- of one run, and of two


class _Frames(NamedTuple):
    """The frames of one graph, or of two in one, by their number."""

    flame: m.FlameGraph | m.FlameDifference
    root: str
    limits: Limits

    def name(self, frame: int) -> str:
        whole = self.flame.names[self.flame.frames[frame].name]
        return one_line(whole, _NAME)

    def kind(self, frame: int) -> str:
        kind = self.flame.frames[frame].kind
        if kind in KINDS:
            return kind
        return "python"

    def place(self, frame: int) -> str:
        known = self.flame.frames[frame]
        path = one_line(relative(self.flame.names[known.file], self.root), 20_000)
        if path and known.line:
            path += f":{known.line}"
        return path

    def file(self, frame: int) -> str:
        return self.place(frame).rpartition("/")[2][:_FILE]

    def kind_and_place(self, frame: int) -> str:
        place = one_line(self.place(frame), _NAME)
        return f"{KINDS[self.kind(frame)][0]}{clause(', ', place)}"

    def in_a_table(self, frame: int) -> str:
        """What has no place says its kind."""
        whole = self.flame.names[self.flame.frames[frame].name]
        place = self.place(frame) or KINDS[self.kind(frame)][0]
        return f"{whole} ({place})"


def short_name(name: str) -> str:
    """What fits into a box: the kind says the rest."""
    if shorter := _SHORT.match(name):
        return shorter[1] or name
    return name


# ---------------------------------------------------------------- of one run


def _whole(flame: m.FlameGraph) -> int:
    """Nanoseconds of all steps."""
    return sum(flame.self_ns) or 1


def _items(flame: m.FlameGraph, frames: _Frames, per: str) -> Sequence[Item]:
    """The nodes as boxes. A title has two lines: the name; what it is, where, and how long it
    took."""
    whole = _whole(flame)
    items = []
    names = [*map(frames.name, range(len(flame.frames)))]
    titles = [f"{name}\n{frames.kind_and_place(frame)}" for frame, name in enumerate(names)]
    for node, at in enumerate(flame.frame):
        total_ns = flame.total_ns[node]
        own = milliseconds(flame.self_ns[node] / flame.steps / 1e3)
        total = milliseconds(total_ns / flame.steps / 1e3)
        calls = figure(flame.calls[node] / flame.steps)
        times = (
            f"{total} ms per {per}, {percent(total_ns / whole)}; itself {own} ms; called "
            f"{calls} times"
        )
        item = Item(
            flame.parent[node],
            total_ns,
            f"f-{frames.kind(at)}",
            short_name(names[at]),
            f"{titles[at]}; {times}",
            frames.file(at),
        )
        items.append(item)
    return items


def _summary(flame: m.FlameGraph, frames: _Frames) -> str:
    """Which functions took longest, and how long the recorder's frames took with what they
    called."""
    whole = _whole(flame)
    longest = [
        f"{frames.name(row.frame)} ({percent(row.self_ns / whole)})"
        for row in flame.top[:_LONGEST]
        if row.self_ns
    ]
    lead = "No function has self time"
    if longest:
        lead = f"Top self time: {', '.join(longest)}"
    own = [False] * len(flame.parent)
    for node, frame in enumerate(flame.frame):
        above = flame.parent[node]
        own[node] = flame.frames[frame].kind == "profiler" or (
            above >= 0
            and own[above]
            and not _WORKLOADS.search(flame.names[flame.frames[flame.frame[above]].file])
        )
    recorders = sum(ns for ns, is_own in zip(flame.self_ns, own, strict=True) if is_own)
    return f"{lead}; kgprof overhead {percent(recorders / whole)}"


def _notes(flame: m.FlameGraph, per: str, drawing: Icicle | None) -> Iterator[str]:
    yield from (f"From a longer recording: {note}" for note in flame.notes)
    if flame.pruned_nodes:
        yield (
            f"{plural(flame.pruned_nodes, 'frame')} with less than {100 * flame.pruned_below:.2g} "
            f"% each, {percent(flame.pruned_ns / _whole(flame))} of the time in all, are grouped "
            "as (other)"
        )
    if drawing and drawing.left_out:
        yield _undrawn(drawing)
    if flame.other_threads_ns:
        time = milliseconds(flame.other_threads_ns / flame.steps / 1e3)
        yield f"Other threads ran operators for {time} ms per {per}, which are not drawn"


def _functions(flame: m.FlameGraph, frames: _Frames, per: str, name: str) -> Iterator[Table | str]:
    shown = flame.top[: frames.limits.host_rows]
    rows = (
        (
            frames.in_a_table(row.frame),
            figure(row.self_ns / flame.steps / 1e3),
            percent(row.self_ns / _whole(flame)),
            figure(row.total_ns / flame.steps / 1e3),
            figure(row.calls / flame.steps),
        )
        for row in shown
    )
    headings = ("function", f"self \N{MICRO SIGN}s/{per}", "share", "with callees", f"calls/{per}")
    yield plain(f"Functions of {name} by their own time, STACK pass", headings, rows)
    if others := flame.functions - len(shown):
        remaining = _whole(flame) - flame.self_ns[0] - sum(row.self_ns for row in shown)
        time = figure(remaining / flame.steps / 1e3)
        yield f"{plural(others, 'more function')}: {time} \N{MICRO SIGN}s per {per}."


# ---------------------------------------------------------------- of base and head

# of the mean of both steps: a change of that much is told by a stronger and a weaker colour
MUCH = 0.05
SOME = 0.005
_COLOURS = (
    ("more2", "+", f"at least {rounded(MUCH)} of a step longer in head"),
    ("more1", "+", f"at least {100 * SOME:.1f} %"),
    ("same", "", "less than that either way"),
    ("less1", MINUS, f"at least {100 * SOME:.1f} % shorter"),
    ("less2", MINUS, f"at least {rounded(MUCH)}"),
)
DIFFERENCES = legend_of("d", *((kind, name, "", sign) for kind, sign, name in _COLOURS))


def differing(
    runs: Sequence[m.RunComparison],
) -> list[tuple[int, m.RunComparison, m.FlameDifference]]:
    return [(index, run, run.flame) for index, run in enumerate(runs) if run.flame]


def flame_difference_folds(
    runs: Sequence[m.RunComparison], root: str, limits: Limits, at: Mapping[m.RunKey, str]
) -> Sequence[Fold]:
    """``at``: the anchors of the runs of the page."""
    found = differing(runs[: limits.runs])
    trees = min(len(found), limits.flames)
    headings = (
        "function",
        "base, self \N{MICRO SIGN}s/step",
        "head, self \N{MICRO SIGN}s/step",
        "change",
    )
    folds = []
    for place, (index, run, flame) in enumerate(found):
        changes = _by_change(flame)
        frames = _Frames(flame, root, limits)
        name = name_of(run.run)
        largest = [
            f"{frames.name(frame)} ({change(after - before)} ms)"
            for frame, (before, after) in changes[:_LONGEST]
            if after != before
        ]
        summary = "Nothing changed"
        if largest:
            summary = f"Largest changes of self time: {', '.join(largest)}"
        pruned = (
            f"Stacks under {100 * flame.pruned_below:.2g} % of the step are in (other), so a stack "
            "that only one side has may have been too small on the other."
        )
        blocks: list[Block] = [_NO_ROOM, pruned]
        if place < trees:
            label = f"CPU stacks of {name}, base and head. {summary}"
            drawing = icicle(_difference_items(flame, frames), limits, trees=trees, label=label)
            blocks = [drawing, pruned]
            if drawing.left_out:
                blocks.append(f"{_undrawn(drawing)}.")
        if shown := changes[: limits.host_rows]:
            rows = [
                (
                    frames.in_a_table(frame),
                    figure(before / 1e3),
                    figure(after / 1e3),
                    change(after - before, micro=True),
                )
                for frame, (before, after) in shown
            ]
            table = plain(f"Functions of {name} by change of self time", headings, rows)
            blocks.append(Fold("Functions by change of self time", (table,)))
        before, after = sum(flame.base_self_ns), sum(flame.head_self_ns)
        caption = (
            f"{_ms(before)} to {_ms(after)} ms per step in the STACK pass, "
            f"{change(after - before)} ms; "
            f"{flame.base_steps} steps of base, {flame.head_steps} of head"
        )
        anchor = f"stacks-{index + 1}"
        folds.append(Fold(name, blocks, caption, f"{summary}.", anchor, run=at.get(run.run, "")))
    return folds


def _difference_items(flame: m.FlameDifference, frames: _Frames) -> Sequence[Item]:
    """As wide as the mean of both sides, so that what only one of them has is there too."""
    base, head = (
        m.with_all_below(flame.parent, side) for side in (flame.base_self_ns, flame.head_self_ns)
    )
    whole = (base[0] + head[0]) / 2 or 1.0
    made = []
    for node, (before, after) in enumerate(zip(base, head, strict=True)):
        frame = flame.frame[node]
        style = style_of((after - before) / whole)
        name = frames.name(frame)
        label = short_name(name)
        if style != "same":
            label = f"{change(after - before)} ms {label}"
        own = flame.head_self_ns[node] - flame.base_self_ns[node]
        times = (
            f"{_ms(before)} to {_ms(after)} ms per step, {change(after - before)}; itself "
            f"{change(own)}"
        )
        if not before:
            times += "; not in base"
        elif not after:
            times += "; not in head"
        title = f"{label}\n{name}, {frames.kind_and_place(frame)}; {times}"
        width = (before + after) / 2
        file = frames.file(frame)
        made.append(Item(flame.parent[node], width, f"d-{style}", label, title, file))
    return made


def style_of(share: float) -> str:
    """``share``: what it took longer, of a step; negative: shorter."""
    if share >= MUCH:
        return "more2"
    if share >= SOME:
        return "more1"
    if share > -SOME:
        return "same"
    if share > -MUCH:
        return "less1"
    return "less2"


def change(ns: float, *, micro: bool = False) -> str:
    """In milliseconds, or in microseconds, with its sign."""
    amount = _ms(abs(ns))
    if micro:
        amount = figure(abs(ns) / 1e3)
    if ns:
        amount = f"{sign(ns)}{amount}"
    return amount


def _ms(ns: float) -> str:
    return milliseconds(ns / 1e3)


def _by_change(flame: m.FlameDifference) -> list[tuple[int, tuple[int, int]]]:
    """Own nanoseconds of each frame in base and head, the largest change first; the step and
    (other) are none."""
    base: Counter[int] = Counter()
    head: Counter[int] = Counter()
    for node, frame in enumerate(flame.frame):
        if node and flame.frames[frame].kind != "pruned":
            base[frame] += flame.base_self_ns[node]
            head[frame] += flame.head_self_ns[node]
    order = sorted(base, key=lambda frame: (-abs(head[frame] - base[frame]), frame))
    return [(frame, (base[frame], head[frame])) for frame in order]
