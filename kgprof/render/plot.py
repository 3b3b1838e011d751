"""A plot with two axes, drawn without a script: lengths across are shares of the width, those up are pixels.

Its twin is a table beside it; each of its shapes says what it is when the pointer rests on it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import ClassVar

import msgspec

from kgprof.render.quantity import figure, of_width
from kgprof.render.table import Drawing, View

ACROSS = 1000  # units of the width
TOP, HIGH = 22, 170  # pixels: above the plot the name of its axis, below it 38 for the other one
_ACROSS_TICKS, _UP_TICKS = 8, 4  # at most
_NICE = (1, 2, 2.5, 5, 10)


class Shape(View, frozen=True, kw_only=True):
    """``path``: in units of ACROSS by pixels."""

    style: str
    path: str
    title: str = ""


class Plot(Drawing, frozen=True, kw_only=True):
    kind: ClassVar[str] = "plot"
    across: ClassVar[int] = ACROSS
    height: ClassVar[int] = HIGH + 38
    bottom: ClassVar[int] = HIGH
    description: str
    shapes: tuple[Shape, ...]
    x_name: str
    x_ticks: tuple[tuple[str, str, str], ...]  # where, text, and the text's anchor
    y_name: str
    y_ticks: tuple[tuple[float, str], ...]
    marks: tuple[tuple[str, str, str, int], ...] = ()  # vertical lines: where, what, the text's anchor and height

    @property
    def groups(self) -> tuple[tuple[str, tuple[Shape, ...]], ...]:
        """The shapes in their order, those of one style that follow each other together."""
        return tuple((style, tuple(shapes)) for style, shapes in groupby(self.shapes, key=lambda shape: shape.style))


class Axis(msgspec.Struct, frozen=True, kw_only=True):
    low: float
    high: float
    log: bool = False

    def at(self, value: float) -> float:
        """0..1 within the axis, and beyond it its end."""
        if self.log:
            share = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / ((self.high - self.low) or 1.0)
        return min(max(share, 0.0), 1.0)

    def x(self, value: float) -> float:
        return round(ACROSS * self.at(value), 1)

    def y(self, value: float) -> float:
        return round(HIGH - (HIGH - TOP) * self.at(value), 1)

    def ticks(self, most: int) -> list[float]:
        if self.log:
            powers = range(math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9) + 1)
            return [10.0**power for power in powers][:: max(1, -(-len(powers) // most))]
        span = (self.high - self.low) or 1.0
        power = 10 ** math.floor(math.log10(span / most))
        each = next(digit * power for digit in _NICE if digit * power >= span / most * 0.999)
        first = math.ceil(self.low / each - 1e-9)
        return [each * count for count in range(first, math.floor(self.high / each + 1e-9) + 1)]


def bar(x: float, width: float, y: float, high: float) -> str:
    """A rectangle whose upper edge is at ``y``."""
    return f"M{x:g} {y:g}h{max(width, 0.4):g}v{max(high, 1.5):g}H{x:g}z"


def line(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in points)


def plot(
    description: str,
    shapes: Sequence[Shape],
    *,
    x: Axis,
    y: Axis,
    x_name: str,
    y_name: str,
    marks: Sequence[tuple[float, str]] = (),
    low_marks: bool = False,
) -> Plot:
    """``low_marks``: the texts of the marks stand at the foot of the plot."""
    sides = []
    for value in x.ticks(_ACROSS_TICKS):
        share = x.at(value)
        sides.append((of_width(share), ticked(value), "end" if share > 0.93 else "middle"))
    drawn = []
    for place, (at, text) in enumerate(marks):
        side = "start" if x.at(at) < (0.9 if low_marks else 0.6) else "end"
        drawn.append((of_width(x.at(at)), text, side, HIGH - 6 if low_marks else TOP + 12 * (place % 3)))
    return Plot(
        description=description,
        shapes=tuple(shapes),
        x_name=x_name,
        x_ticks=tuple(sides),
        y_name=y_name,
        y_ticks=tuple((y.y(value), ticked(value)) for value in y.ticks(_UP_TICKS)),
        marks=tuple(drawn),
    )


def ticked(value: float) -> str:
    """Without the zeros that no tick needs."""
    text = figure(value)
    return text.rstrip("0").rstrip(".") if "." in text else text
