"""The stacks of base and head in one flame graph: how much each took longer, as a sign and a number and a colour."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from kgprof import model as m
from kgprof.render.chart import Legend, LegendEntry
from kgprof.render.flame_chart import (
    LONGEST,
    NAME,
    drawing_and_notes,
    kind_and_place,
    name_and_place,
    name_of,
    not_drawn,
    short_name,
)
from kgprof.render.icicle import Icicle, Item, icicle
from kgprof.render.limits import Limits
from kgprof.render.quantity import figure, milliseconds
from kgprof.render.table import Fold, plain
from kgprof.render.visible import one_line

MUCH, SOME = 0.05, 0.005  # of the mean of both steps: a change of that much is told by a stronger and a weaker colour
_MINUS = "\N{MINUS SIGN}"
_COLOURS = (
    ("more2", "+", f"at least {100 * MUCH:.0f} % of a step longer in head"),
    ("more1", "+", f"at least {100 * SOME:.1f} %"),
    ("same", "", "less than that either way"),
    ("less1", _MINUS, f"at least {100 * SOME:.1f} % shorter"),
    ("less2", _MINUS, f"at least {100 * MUCH:.0f} %"),
)
LEGEND = Legend(
    entries=tuple(
        LegendEntry(kind=kind, letter=sign, name=name, meaning="", family="d") for kind, sign, name in _COLOURS
    )
)


def differing(runs: Sequence[m.RunComparison]) -> list[tuple[int, m.RunComparison, m.FlameDifference]]:
    return [(index, run, run.flame) for index, run in enumerate(runs) if run.flame is not None]


def flame_difference_folds(runs: Sequence[m.RunComparison], root: str, limits: Limits) -> tuple[Fold, ...]:
    found = differing(runs[: limits.runs])
    trees = min(len(found), limits.flames)
    folds = []
    for place, (index, run, flame) in enumerate(found):
        name, summary = one_line(run.run.slug, limits.name), _summary(flame, limits)
        label, drawing = f"Host stacks of {name}, base and head. {summary}", None
        if place < trees:
            drawing = icicle(items(flame, root), limits, trees=trees, label=label)
        blocks = [*drawing_and_notes(drawing, _notes(flame, drawing))]
        if shown := _by_change(flame)[: limits.host_rows]:
            rows = (
                (
                    name_and_place(flame, frame, root, limits),
                    figure(before / 1e3),
                    figure(after / 1e3),
                    change(after - before, micro=True),
                )
                for frame, (before, after) in shown
            )
            headings = ("function", "base, self \N{MICRO SIGN}s/step", "head, self \N{MICRO SIGN}s/step", "change")
            table = plain(f"Functions of {name} by the change of their own time", headings, rows)
            title = "The functions whose own time changed most, as a table"
            blocks.append(Fold(title, blocks=(table,), style=""))
        before, after = sum(flame.base_self_ns), sum(flame.head_self_ns)
        folds.append(
            Fold(
                name,
                blocks=tuple(blocks),
                caption=f"{_ms(before)} to {_ms(after)} ms a step under STACK, {change(after - before)} ms; "
                f"{flame.base_steps} steps of base, {flame.head_steps} of head",
                lead=f"{summary}.",
                anchor=f"stacks-{index + 1}",
                open=not place,
            )
        )
    return tuple(folds)


def items(flame: m.FlameDifference, root: str) -> tuple[Item, ...]:
    """As wide as the mean of both sides, so that what only one of them has is there too."""
    base, head = (_totals(flame, side) for side in (flame.base_self_ns, flame.head_self_ns))
    whole, made = (base[0] + head[0]) / 2 or 1.0, []
    for node, (before, after) in enumerate(zip(base, head, strict=True)):
        frame, style = flame.frame[node], style_of((after - before) / whole)
        name = name_of(flame, frame)
        label = short_name(name) if style == "same" else f"{change(after - before)} ms {short_name(name)}"
        own = flame.head_self_ns[node] - flame.base_self_ns[node]
        only = "; not in base" if not before else "; not in head" if not after else ""
        times = f"{_ms(before)} to {_ms(after)} ms a step, {change(after - before)}; itself {change(own)}{only}"
        item = Item(
            parent=flame.parent[node],
            width=(before + after) / 2,
            style=f"d-{style}",
            label=label,
            title=f"{label}\n{name}, {kind_and_place(flame, frame, root)}; {times}",
        )
        made.append(item)
    return tuple(made)


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


def _ms(ns: float) -> str:
    return milliseconds(ns / 1e3)


def _summary(flame: m.FlameDifference, limits: Limits) -> str:
    largest = [
        f"{name_of(flame, frame, min(limits.name, NAME))} ({change(after - before)} ms)"
        for frame, (before, after) in _by_change(flame)[:LONGEST]
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


def _notes(flame: m.FlameDifference, drawing: Icicle | None) -> Iterator[str]:
    yield (
        f"What took less than {100 * flame.pruned_below:.2g} % of its step stands in (other), so a stack that only one "
        "side has may have been too small on the other"
    )
    yield from not_drawn(drawing)
