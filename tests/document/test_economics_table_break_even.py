"""Curves of what calls cost in all: they start where starting does, and cross where the table
says."""

from __future__ import annotations

import re

import msgspec
import pytest

from kgprof.document.economics_table import break_even_plots, weighed
from kgprof.document.plot import ACROSS, HIGH, TOP, Plot
from kgprof.model import Skipped
from tests.render import profiles

POINT = re.compile(r"([\d.]+) ([\d.]+)")


def plots() -> list[Plot]:
    found = break_even_plots(weighed(profiles.watched()), "candidates")
    return [block for block in found if isinstance(block, Plot)]


def test_a_compiled_curve_crosses_eagers_at_the_break_even() -> None:
    drawing = plots()[0]

    curves = {
        shape.style: [tuple(map(float, p)) for p in POINT.findall(shape.path)]
        for shape in drawing.shapes
    }
    eager, compiled = curves["curve c-0"], curves["curve c-1"]
    crossing = next(x for (x, own), (_, other) in zip(compiled, eager, strict=True) if own >= other)
    ((where, said, *_),) = drawing.marks
    assert said == "B after 306,346"
    # then: within a sampled point of where the mark is
    assert crossing / ACROSS == pytest.approx(float(where.rstrip("%")) / 100, abs=1.5 / 47)
    assert all(
        0 <= x <= ACROSS and TOP <= y <= HIGH for points in curves.values() for x, y in points
    )
    titles = {shape.style: shape.title.replace("\N{MICRO SIGN}", "u") for shape in drawing.shapes}
    assert titles["curve c-1"] == "batched.default: 14.2 s once, then 59.3 us per candidate"
    # then: the band is around its curve, as wide as the spread
    band = curves["band c-1"]
    assert band[0][1] >= compiled[0][1] >= band[-1][1]
    assert band[47][1] > compiled[-1][1] > band[48][1]


@pytest.mark.parametrize("why", ["slower than eager", "torch also compiles after warm-up"])
def test_what_has_no_break_even_has_no_curve(why: str) -> None:
    one = msgspec.structs.replace(weighed(profiles.watched())[0], cold=Skipped(reason=why))

    assert tuple(break_even_plots([one], "candidates")) == ()
