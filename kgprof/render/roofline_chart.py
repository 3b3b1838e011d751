"""Kernels by how long a launch takes and how much of the card's measured peak it reaches, as a scatter plot.

Its twin is the table of kernels, whose numbers the circles carry.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from kgprof import model as m
from kgprof.render.chart import Legend, LegendEntry
from kgprof.render.escaping import one_line
from kgprof.render.quantity import figure, of_width, percent
from kgprof.render.table import Drawing
from kgprof.wording import short_name

_HIGH, _LEFT, _TOP = 260, 0.05, 16  # pixels; of the width; pixels
_MOST = 1.25  # of the peak: what is served from a cache lies above 1
_MOST_POINTS = 60  # the kernels with the most time
_NAMED = 6  # circles with their number
_LARGEST = 26  # pixels of a radius

BOUNDS = Legend(
    entries=(
        LegendEntry(
            kind="compute", letter="", name="compute-bound", meaning="near the measured matmul rate", family="r"
        ),
        LegendEntry(kind="memory", letter="", name="memory-bound", meaning="near the measured copy rate", family="r"),
        LegendEntry(kind="latency", letter="", name="latency-bound", meaning="too short to reach either", family="r"),
        LegendEntry(kind="above", letter="", name="above peak", meaning="served from cache", family="r"),
    )
)
_STYLES = dict(zip(m.Bound, ("memory", "compute", "latency", "above"), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    x: str
    y: float
    radius: float
    style: str
    title: str
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scatter(Drawing):
    kind: ClassVar[str] = "scatter"
    description: str
    height: int
    bottom: int
    left: str
    points: tuple[Point, ...]
    across: tuple[tuple[str, str], ...]  # where and what, along the duration
    up: tuple[tuple[float, str], ...]  # along the share of the peak


def scatter(run: m.RunReport, kernels: m.KernelBreakdown, roofline: m.Roofline) -> Scatter:
    ranks = {kernel.name: rank for rank, kernel in enumerate(kernels.rows, start=1)}
    known = [
        (each, each.of_ceiling, each.bound)
        for each in roofline.rows[:_MOST_POINTS]
        if isinstance(each.of_ceiling, float) and not isinstance(each.bound, m.Skipped) and each.median_us > 0
    ]
    times = [each.median_us for each, *_ in known] or [1.0]
    low, high = math.log10(min(times) / 1.3), math.log10(max(times) * 1.3)

    def x(us: float) -> str:
        return of_width(_LEFT + (1 - _LEFT) * (math.log10(us) - low) / (high - low))

    def y(share: float) -> float:
        return round(_TOP + (_HIGH - _TOP) * (1 - min(share, _MOST) / _MOST), 1)

    points = tuple(
        Point(
            x=x(each.median_us),
            y=y(share),
            radius=round(max(3.0, _LARGEST * math.sqrt(each.share)), 1),
            style=f"r-{_STYLES[m.Bound(bound)]}",
            title=f"#{ranks.get(each.name, 0)} {short_name(one_line(each.name, 20_000), 60)}: "
            f"{figure(each.median_us)} \N{MICRO SIGN}s, {percent(share)} of peak, {bound}, "
            f"{percent(each.share)} of GPU time",
            label=f"#{ranks[each.name]}" if place < _NAMED and each.name in ranks else "",
        )
        for place, (each, share, bound) in enumerate(sorted(known, key=lambda one: -one[0].share))
    )
    decades = [10.0**power * digit for power in range(math.floor(low), math.ceil(high) + 1) for digit in (1, 3)]
    return Scatter(
        description=f"Roofline of {one_line(run.key.slug, 200)}: {len(points)} kernels by duration and share of the "
        f"measured peak; the table of kernels has the same figures",
        height=_HIGH + 40,
        bottom=_HIGH,
        left=of_width(_LEFT),
        points=points,
        across=tuple((x(us), f"{us:g}") for us in decades if low <= math.log10(us) <= high),
        up=tuple((y(share), f"{100 * share:.0f} %") for share in (0, 0.25, 0.5, 0.75, 1.0)),
    )
