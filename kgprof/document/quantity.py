"""Numbers as people read them: three significant digits, thousands separators, the unit said by the
caller's column; and how far samples lie apart, only as much as their number can carry."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from kgprof import model as m
from kgprof.wording import figure as figure
from kgprof.wording import plural

_Value = TypeVar("_Value")
DASH = "\N{EN DASH}"
MINUS = "\N{MINUS SIGN}"
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB")


def count(value: int) -> str:
    return f"{value:,}"


def plain_number(value: float) -> str:
    """A count with all its digits; what is a mean with three."""
    if value == round(value):
        return count(round(value))
    return figure(value)


def sign(value: float) -> str:
    if value > 0:
        return "+"
    return MINUS


def or_dash(value: _Value | None, words: Callable[[_Value], str], dash: str = DASH) -> str:
    """``words`` of the value, if there is one."""
    if value is None:
        return dash
    return words(value)


def if_known(value: _Value | m.Skipped, words: Callable[[_Value], str]) -> Sequence[str]:
    """``words`` of what was measured, and nothing of what was not."""
    if isinstance(value, m.Skipped):
        return ()
    return (words(value),)


def milliseconds(us: float) -> str:
    return figure(us / 1000)


def duration(us: float) -> str:
    """In the unit that a person would choose: "6.90 µs", "2.61 ms", "1.20 s"."""
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if abs(us) >= size:
            return f"{figure(us / size)} {unit}"
    return f"{figure(us)} µs"


def ratio(value: float) -> str:
    return f"{figure(value)}\N{MULTIPLICATION SIGN}"


def percent(share: float) -> str:
    """A share of 0..1 with one decimal; what is there but rounds to nothing says so."""
    if 0 < share < 0.0005:
        return "< 0.1 %"
    return f"{100 * share:.1f} %"


def rounded(share: float) -> str:
    """A share of 0..1 in whole per cent."""
    return f"{100 * share:.0f} %"


def share_of(part: float, whole: float) -> float:
    """0..1; of nothing no part has a share."""
    if not whole:
        return 0.0
    return part / whole


def fixed(value: float, decimals: int) -> str:
    """For metrics whose digits people compare down a column."""
    return f"{value:.{min(max(0, decimals), 15)}f}"


def size(size_bytes: int) -> str:
    """In the largest unit of 1,024 that leaves at least one: "1.50 MiB"."""
    amount = float(size_bytes)
    for unit in _BINARY:
        if amount < 1024 or unit == _BINARY[-1]:
            break
        amount /= 1024
    return f"{figure(amount)} {unit}"


def span(low: str, high: str) -> str:
    if low == high:
        return low
    return f"{low}{DASH}{high}"


def amount(value: float, unit: str) -> str:
    """A budget or what was held against it, with its unit: "1 site", "7 events", "12.0 s", "2.40
    syncs/step"."""
    if unit == "s":
        return f"{value:.1f} s"
    return f"{plain_number(value)} {counted(value, unit)}"


def counted(value: float, unit: str) -> str:
    """The unit after this number: "site" after 1, else "sites"; "sync/step"."""
    noun, per, base = unit.partition("/")
    if value == 1:
        noun = noun.removesuffix("s")
    return f"{noun}{per}{base}"


def of_width(share: float) -> str:
    """An SVG length: per cent of the element's width, so that geometry needs neither style nor
    script."""
    return f"{100 * min(max(share, 0.0), 1.0):.3f}%"


FEWEST_FOR_A_RANGE = 3  # samples
# below it p10 and p90 are nothing but interpolation: the extremes are shown, and named
FEWEST_FOR_PERCENTILES = 10
EXTREMES = "min\N{EN DASH}max"


def p10_to_p90(time: m.Spread) -> tuple[float, float]:
    """Of few samples the extremes: below ten, percentiles are interpolation."""
    if time.samples >= FEWEST_FOR_PERCENTILES:
        return time.p10, time.p90
    return time.minimum, time.maximum


def ranged(time: m.Spread, scale: float = 1.0) -> str:
    """Empty where there are too few samples for any range."""
    if time.samples < FEWEST_FOR_A_RANGE:
        return ""
    low, high = p10_to_p90(time)
    return span(figure(low * scale), figure(high * scale))


def sampled(time: m.Spread) -> str:
    """The number of samples, and what the range is of where it is not p10 to p90."""
    if time.samples < FEWEST_FOR_A_RANGE:
        return plural(time.samples, "sample")
    said = f"n = {count(time.samples)}"
    if time.samples >= FEWEST_FOR_PERCENTILES:
        return said
    return f"{said}, {EXTREMES}"


def of_speedup(speedup: m.Speedup) -> str:
    """Its range, or why there is none."""
    if isinstance(speedup.low, m.Skipped):
        return speedup.low.reason
    if isinstance(speedup.high, m.Skipped):
        return speedup.high.reason
    return span(figure(speedup.low), figure(speedup.high))
