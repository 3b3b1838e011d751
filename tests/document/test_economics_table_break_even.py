"""Curves of what calls cost in all: they start where starting does, and cross where the table
says."""

from __future__ import annotations

import re

import msgspec
import pytest

from kgprof.document.breakdown import Legend
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


def test_a_mode_that_never_pays_has_a_curve_and_no_mark() -> None:
    watched = weighed(profiles.watched())
    (legend, drawing) = tuple(break_even_plots(watched[1:2], "candidates"))

    assert isinstance(legend, Legend)
    assert isinstance(drawing, Plot)
    assert [entry.name for entry in legend.entries] == [watched[1].eager.slug, watched[1].run.slug]
    assert not drawing.marks
    assert "in none" in drawing.description


def test_what_was_not_timed_has_no_curve() -> None:
    one = msgspec.structs.replace(
        weighed(profiles.watched())[0], cold_s=Skipped(reason="no COMPILE")
    )

    assert tuple(break_even_plots([one], "candidates")) == ()
