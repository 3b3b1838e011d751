"""The stacks of base and head in one flame graph: how much each took longer, as a sign and a number and a colour."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from kgprof import model as m
from kgprof.render.flame_chart import KINDS, NAME, kind_of, place_of, short_name
from kgprof.render.icicle import Icicle, Item, icicle
from kgprof.render.limits import Limits
from kgprof.render.quantity import figure, milliseconds
from kgprof.render.table import Table, plain
from kgprof.render.visible import one_line

MUCH, SOME = 0.05, 0.005  # of the mean of both steps: a change of that much is told by a stronger and a weaker colour
_SAID = 3  # functions that the sentence above the drawing names
_MINUS = "\N{MINUS SIGN}"

LEGEND = (
    ("more2", "+", f"at least {100 * MUCH:.0f} % of a step longer in head"),
    ("more1", "+", f"at least {100 * SOME:.1f} %"),
    ("same", "", "less than that either way"),
    ("less1", _MINUS, f"at least {100 * SOME:.1f} % shorter"),
    ("less2", _MINUS, f"at least {100 * MUCH:.0f} %"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlameDifferenceChart:
    anchor: str
    run: str
    caption: str
    summary: str
    drawing: Icicle | None
    missing: str  # why there is no drawing
    notes: tuple[str, ...]
    table: Table


def differing(runs: Sequence[m.RunComparison]) -> list[tuple[int, m.RunComparison, m.FlameDifference]]:
    return [(index, run, run.flame) for index, run in enumerate(runs) if run.flame is not None]


def flame_difference_charts(
    runs: Sequence[m.RunComparison], root: str, limits: Limits
) -> tuple[FlameDifferenceChart, ...]:
    found = differing(runs[: limits.runs])
    trees = min(len(found), limits.flames)
    return tuple(
        _chart(index, run, flame, root, limits, trees=trees if place < trees else 0)
        for place, (index, run, flame) in enumerate(found)
    )


def _chart(
    index: int, run: m.RunComparison, flame: m.FlameDifference, root: str, limits: Limits, *, trees: int
) -> FlameDifferenceChart:
    drawing = icicle(items(flame, root), limits, trees=trees) if trees else None
    before, after = sum(flame.base_self_ns), sum(flame.head_self_ns)
    return FlameDifferenceChart(
        anchor=f"stacks-{index + 1}",
        run=one_line(run.run.slug, limits.name),
        caption=f"{_ms(before)} to {_ms(after)} ms a step under STACK, {change(after - before)} ms; "
        f"{flame.base_steps} steps of base, {flame.head_steps} of head",
        summary=_summary(flame, limits),
        drawing=drawing,
        missing="" if drawing else "left out of this page to keep it small; report.json holds it",
        notes=tuple(_notes(flame, drawing)),
        table=_table(flame, root, limits),
    )


# ---------------------------------------------------------------- boxes


def items(flame: m.FlameDifference, root: str) -> tuple[Item, ...]:
    """As wide as the mean of both sides, so that what only one of them has is there too."""
    before, after = (_totals(flame, side) for side in (flame.base_self_ns, flame.head_self_ns))
    whole = (before[0] + after[0]) / 2 or 1.0
    return tuple(
        Item(
            parent=flame.parent[node],
            width=(before[node] + after[node]) / 2,
            style=f"d-{style_of((after[node] - before[node]) / whole)}",
            label=_label(flame, node, after[node] - before[node], whole),
            title=_title(flame, node, before[node], after[node], root, whole),
        )
        for node in range(len(flame.frame))
    )


def style_of(share: float) -> str:
    """``share``: what it took longer, of a step; negative: shorter."""
    if abs(share) < SOME:
        return "same"
    return f"{'more' if share > 0 else 'less'}{2 if abs(share) >= MUCH else 1}"


def change(ns: float, *, micro: bool = False) -> str:
    """In milliseconds, or in microseconds, with its sign."""
    amount = figure(abs(ns) / 1e3) if micro else _ms(abs(ns))
    return f"{'+' if ns > 0 else _MINUS if ns < 0 else ''}{amount}"


def _totals(flame: m.FlameDifference, own_ns: Sequence[int]) -> list[int]:
    totals = list(own_ns)
    for node in range(len(totals) - 1, 0, -1):
        totals[flame.parent[node]] += totals[node]
    return totals


def _label(flame: m.FlameDifference, node: int, delta_ns: int, whole: float) -> str:
    name = short_name(_name(flame, node))
    return name if style_of(delta_ns / whole) == "same" else f"{change(delta_ns)} ms {name}"


def _title(flame: m.FlameDifference, node: int, before: int, after: int, root: str, whole: float) -> str:
    frame = flame.frames[flame.frame[node]]
    where = one_line(place_of(flame.names[frame.file], frame.line, root), NAME)
    kind = f"{KINDS[kind_of(frame)][0]}{f', {where}' if where else ''}"
    own = flame.head_self_ns[node] - flame.base_self_ns[node]
    only = "; not in base" if not before else "; not in head" if not after else ""
    times = f"{_ms(before)} to {_ms(after)} ms a step, {change(after - before)}; itself {change(own)}{only}"
    return f"{_label(flame, node, after - before, whole)}\n{_name(flame, node)}, {kind}; {times}"


def _name(flame: m.FlameDifference, node: int) -> str:
    return one_line(flame.names[flame.frames[flame.frame[node]].name], NAME)


def _ms(ns: float) -> str:
    return milliseconds(ns / 1e3)


# ---------------------------------------------------------------- sentences and the table


def _summary(flame: m.FlameDifference, limits: Limits) -> str:
    largest = [
        f"{one_line(flame.names[flame.frames[frame].name], min(limits.name, NAME))} ({change(after - before)} ms)"
        for frame, (before, after) in _by_change(flame)[:_SAID]
        if after != before
    ]
    return f"Of what functions took themselves, most changed {', '.join(largest)}" if largest else "Nothing changed"


def _by_change(flame: m.FlameDifference) -> list[tuple[int, tuple[int, int]]]:
    """Own nanoseconds of each frame in base and head, the largest change first; the step and (other) are none."""
    found: dict[int, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for node, frame in enumerate(flame.frame):
        if node and flame.frames[frame].kind != "pruned":
            before, after = found[frame]
            found[frame] = (before + flame.base_self_ns[node], after + flame.head_self_ns[node])
    return sorted(found.items(), key=lambda item: (-abs(item[1][1] - item[1][0]), item[0]))


def _notes(flame: m.FlameDifference, drawing: Icicle | None) -> list[str]:
    said = [
        f"What took less than {100 * flame.pruned_below:.2g} % of its step stands in (other), so a stack that only one "
        "side has may have been too small on the other"
    ]
    if drawing and drawing.left_out:
        said.append(f"Not drawn: {' and '.join(drawing.left_out)}; report.json holds all of it")
    return said


def _table(flame: m.FlameDifference, root: str, limits: Limits) -> Table:
    rows = []
    for frame, (before, after) in _by_change(flame)[: limits.host_rows]:
        known = flame.frames[frame]
        where = place_of(flame.names[known.file], known.line, root) or KINDS[kind_of(known)][0]
        name = one_line(f"{flame.names[known.name]} ({where})", limits.name)
        rows.append((name, figure(before / 1e3), figure(after / 1e3), change(after - before, micro=True)))
    unit = "self \N{MICRO SIGN}s/step"
    return plain(
        "Functions by the change of their own time", ("function", f"base, {unit}", f"head, {unit}", "change"), rows
    )
