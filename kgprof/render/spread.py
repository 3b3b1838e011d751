"""How far samples lie apart, in words: only as much as their number can carry."""

from __future__ import annotations

from kgprof import model as m
from kgprof.render.quantity import count, figure, span

FEWEST_FOR_A_RANGE = 3  # samples
FEWEST_FOR_PERCENTILES = 10  # below it p10 and p90 are nothing but interpolation: the extremes are shown, and named
EXTREMES = "min\N{EN DASH}max"


def ranged(time: m.Spread, scale: float = 1.0) -> str:
    """Empty where there are too few samples for any range."""
    if time.samples < FEWEST_FOR_A_RANGE:
        return ""
    enough = time.samples >= FEWEST_FOR_PERCENTILES
    low, high = (time.p10, time.p90) if enough else (time.minimum, time.maximum)
    return span(figure(low * scale), figure(high * scale))


def sampled(time: m.Spread) -> str:
    """The number of samples, and what the range is of where it is not p10 to p90."""
    said = f"n = {count(time.samples)}"
    if time.samples < FEWEST_FOR_A_RANGE:
        return f"{said}, no spread"
    return said if time.samples >= FEWEST_FOR_PERCENTILES else f"{said}, {EXTREMES}"


def of_speedup(speedup: m.Speedup) -> str:
    """Its range, or why there is none."""
    if isinstance(speedup.low, m.Skipped):
        return speedup.low.reason
    if isinstance(speedup.high, m.Skipped):
        return speedup.high.reason
    return span(figure(speedup.low), figure(speedup.high))
