"""Step times as pictures: every step is in one, and what lies far above is seen."""

from __future__ import annotations

import re

import msgspec

from kgprof.document.plot import ACROSS, HIGH, Plot, step_time_folds
from kgprof.model import Skipped
from kgprof.render.html import LEVELS
from tests.render import profiles
from tests.render.tables import drawn, notes, tables, texts

BAR = re.compile(r"M([\d.]+) ([\d.]+)h([\d.]+)v([\d.]+)H[\d.]+z")


def shapes(plot: Plot, style: str) -> list[tuple[tuple[float, ...], str]]:
    """x, upper edge, width and height, and the title."""
    found = []
    for shape in plot.shapes:
        if shape.style == style and (bar := BAR.fullmatch(shape.path)):
            found.append((tuple(map(float, bar.groups())), shape.title))
    return found


def test_the_bars_hold_every_step_and_the_table_each_process() -> None:
    run = profiles.watched().runs[0]
    (fold,) = step_time_folds([run], LEVELS[0])

    distribution, over_time = (block for block in fold.blocks if isinstance(block, Plot))
    held = [
        int(title.split(": ")[1].split(" of ")[0]) for _, title in shapes(distribution, "p-bar")
    ]
    ((_, far),) = shapes(distribution, "p-far")
    assert (sum(held), far) == (305, "above 7.49 ms: 1 step, up to 31.3 ms")
    assert [text for _, text, *_ in distribution.marks] == ["p10", "median", "p90"]
    ranges = shapes(over_time, "p-range")
    assert len(ranges) == 3 * 17
    assert all(
        0 <= x <= x + width <= ACROSS and y + high <= HIGH + 1.5
        for (x, y, width, high), _ in ranges
    )
    assert [text for _, text, *_ in over_time.marks] == ["process 1", "process 2", "process 3"]
    assert len(shapes(over_time, "p-far")) == 1
    (table,) = tables(fold.blocks)
    assert [row[:2] for row in texts(table)] == [
        ("process 1", "102"),
        ("process 2", "102"),
        ("process 3", "102"),
    ]


def test_a_run_without_times_says_why() -> None:
    untimed = Skipped(reason="the process was killed during TIMING")
    run = msgspec.structs.replace(profiles.clean().runs[0], series=untimed)
    (fold,) = step_time_folds([run], LEVELS[0])

    assert drawn(Plot, fold.blocks) is None
    assert notes(fold.blocks) == ("No step times: the process was killed during TIMING.",)
