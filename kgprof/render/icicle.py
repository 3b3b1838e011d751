"""A tree as boxes, the callers above: what a flame graph of a run and the difference of two have in common.

Lengths across are per cent, so that the same drawing fits a telephone and a wall. A box is as high as a finger needs,
because a script makes them react; without one each still says what it is, in its title.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from kgprof.render.limits import Limits
from kgprof.render.quantity import of_width
from kgprof.render.table import Drawing
from kgprof.wording import plural

ROW = 24  # pixels
NARROWEST = 0.0015  # of the width: two pixels of a wide screen
_BOXES = 600  # of a page, shared by the trees that are drawn
_MOST_BOXES = 300  # of one of them
_LABELLED = 0.025  # of the width: with a name in it on a wide screen
_WITH_FILE = 0.12  # and with its place
_WIDE = 0.09  # and with a name on a telephone


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A node; ``title`` is its name, and on further lines what it is and how long it took."""

    parent: int  # index, and smaller than its own; -1 of the first
    width: float  # with all below it, in any unit
    style: str
    label: str
    title: str
    file: str = ""  # its place in short: "policy.py:77"


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    style: str
    x: str
    y: int
    width: str
    label: str  # empty where there is no room for it
    title: str
    file: str = ""  # likewise


@dataclass(frozen=True, slots=True, kw_only=True)
class Icicle(Drawing):
    kind: ClassVar[str] = "icicle"
    label: str = ""  # what the drawing is called
    height: int
    boxes: tuple[Box, ...]
    left_out: tuple[str, ...]  # in words


def icicle(items: Sequence[Item], limits: Limits, *, trees: int = 1, label: str = "") -> Icicle:
    """One of ``trees`` that the page draws. Children stand side by side from their parent's start on; what is free at
    its end is the parent's own."""
    depth: list[int] = []
    starts, taken = [0.0] * len(items), [0.0] * len(items)
    for node, item in enumerate(items):
        depth.append(depth[item.parent] + 1 if item.parent >= 0 else 0)
        if item.parent >= 0:
            starts[node] = starts[item.parent] + taken[item.parent]
            taken[item.parent] += item.width
    shares = [item.width / (items[0].width or 1.0) for item in items]
    shallow = [node for node in range(len(items)) if depth[node] < limits.flame_rows]
    most = min(_MOST_BOXES, max(1, _BOXES // max(1, trees)))
    widest = sorted((shares[node] for node in shallow), reverse=True)
    # Of those as wide as the first that there is no room for none is drawn: a parent is never narrower than its child.
    least = max(NARROWEST, widest[most] * 1.000001 if len(widest) > most else 0.0)
    drawn = [node for node in shallow if shares[node] >= least]
    deeper, narrower = len(items) - len(shallow), len(shallow) - len(drawn)
    left_out = (
        f"{plural(deeper, 'frame')} below the first {limits.flame_rows} rows" if deeper else "",
        f"{plural(narrower, 'frame')} narrower than {100 * least:.2g} % of the step" if narrower else "",
    )
    boxes = (
        Box(
            style=f"{items[node].style}{'' if shares[node] >= _WIDE else ' narrow'}",
            x=of_width(starts[node] / (items[0].width or 1.0)),
            y=ROW * depth[node],
            width=of_width(shares[node]),
            label=items[node].label if shares[node] >= _LABELLED else "",
            file=items[node].file if shares[node] >= _WITH_FILE else "",
            title=items[node].title,
        )
        for node in drawn
    )
    return Icicle(
        label=label,
        height=ROW * (1 + max((depth[node] for node in drawn), default=0)),
        boxes=tuple(boxes),
        left_out=tuple(words for words in left_out if words),
    )
