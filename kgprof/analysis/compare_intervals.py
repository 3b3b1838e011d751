"""Is one set of rounds slower than another? An interval for the ratio of two times, and what it says of a budget.

Everything is of the logarithms of the rounds' medians, at 95 %, two-sided; the exponential of a difference of means is
a ratio, and base over head has the inverse interval. A round is a fresh process, so that its median is one independent
sample; the steps within one are not.

``interval`` is Welch's (B. L. Welch, Biometrika 34, 1947: unequal variances, Satterthwaite's degrees of freedom). What
drifts between two recordings as a whole (another neighbour on the machine, another clock) is in neither variance, and
so not in it.

``adjusted`` takes that out where each round also timed the machine itself. It is the analysis of covariance with one
covariate (Snedecor and Cochran, Statistical Methods, 6th edition, 1967, chapter 14): within the sides, rounds in which
the machine's loop took longer tell by how much the time follows it. That slope, kept between 0 (the step waits for
other things) and 1 (for nothing else), times what the loop differs between the sides is the machine's part. It is taken
off the difference of the means, and the error of having estimated it is in the interval. On an H200 it was 0.1 for a
step that waits for the GPU and 1.0 for one that waits for the host, and the intervals were half as wide as Welch's.
A program that slows its own machine down, with threads that spin for instance, has that taken off as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, variance

FEWEST_ROUNDS = 2  # on either side: of one there is no variance
MOST_ROUNDS = 1000  # that are worth naming: beyond, the effect is too near to the budget to settle

STILL = 1e-12  # sum of squares of a loop's logarithms: it took the same time to a millionth, and tells no slope
WIDEST = 5.0  # half an interval of logarithms: beyond 148 times as long nothing is said

WORSE, SAME, BETTER, INCONCLUSIVE = "worse", "same", "better", "inconclusive"

# Student's t, two-sided 95 %, by degrees of freedom: NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2.
# Between entries the one before is taken, which makes the interval wider and never narrower.
_T_TO_30 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
_T_FROM = ((100.0, 1.984), (60.0, 2.000), (40.0, 2.021))


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """For head over base. ``base`` and ``head`` are geometric means of their samples; their quotient is
    ``ratio * machine``, and ``low`` to ``high`` is of ``ratio``."""

    base: float
    head: float
    ratio: float
    low: float
    high: float
    machine: float | None = None  # how much of it is the machine's and not the program's; None: not known

    def verdict(self, budget: float) -> str:
        """``budget``: the share by which head may take longer, 0.05 for 5 %."""
        if self.low > 1 + budget:
            return WORSE
        if self.high < 1 / (1 + budget):
            return BETTER
        return SAME if self.high <= 1 + budget else INCONCLUSIVE


def t_quantile(degrees: float) -> float:
    """97.5 % quantile of Student's t; ``degrees`` from 1 on, rounded down."""
    if degrees <= len(_T_TO_30):
        return _T_TO_30[max(1, math.floor(degrees + 1e-9)) - 1]  # 1e-9: 3.9999999999 is 4 that was rounded
    return next((t for least, t in _T_FROM if degrees >= least), _T_TO_30[-1])


def interval(base: Sequence[float], head: Sequence[float]) -> Interval | None:
    """None where a side has too few rounds, or a time that is no time (0 or less)."""
    if min(len(base), len(head)) < FEWEST_ROUNDS or min(*base, *head) <= 0:
        return None
    below, above = [math.log(x) for x in base], [math.log(x) for x in head]
    middle = fmean(above) - fmean(below)
    half = _half_width(variance(below), len(below), variance(above), len(above))
    return Interval(
        base=math.exp(fmean(below)),
        head=math.exp(fmean(above)),
        ratio=math.exp(middle),
        low=math.exp(middle - half),
        high=math.exp(middle + half),
    )


def _half_width(base: float, base_rounds: int, head: float, head_rounds: int) -> float:
    """``base`` and ``head`` are variances of logarithms."""
    parts = base / base_rounds, head / head_rounds
    error = sum(parts)
    if error == 0:
        return 0.0
    degrees = error**2 / (parts[0] ** 2 / (base_rounds - 1) + parts[1] ** 2 / (head_rounds - 1))
    return t_quantile(degrees) * math.sqrt(error)


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    time: float
    machine: float  # what the machine's own loop took beside it, in any unit


def adjusted(base: Sequence[Round], head: Sequence[Round]) -> Interval | None:
    """None where ``interval`` is, and where the loop tells no slope: it hardly moved within the sides."""
    measured = interval([one.time for one in base], [one.time for one in head])
    line = _line(base, head) if measured is not None else None
    if measured is None or line is None:
        return None
    middle = math.log(measured.ratio) - line.slope * line.apart
    half = line.half_width(1.0)
    if half > WIDEST:
        return None
    return Interval(
        base=measured.base,
        head=measured.head,
        ratio=math.exp(middle),
        low=math.exp(middle - half),
        high=math.exp(middle + half),
        machine=math.exp(line.slope * line.apart),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Line:
    """How the times follow the loop within the sides. All of logarithms."""

    slope: float
    apart: float  # of the loop: head's mean less base's
    squares: float  # of the loop about the sides' means
    residual: float  # sum of squares of the times about the line
    base: int
    head: int

    def half_width(self, times: float) -> float:
        """With so many times the rounds that there are."""
        degrees = times * (self.base + self.head) - 3
        error = self.residual / (self.base + self.head - 3)
        error *= 1 / (times * self.base) + 1 / (times * self.head) + self.apart**2 / (times * self.squares)
        return t_quantile(degrees) * math.sqrt(error)


def _line(base: Sequence[Round], head: Sequence[Round]) -> _Line | None:
    if min(one.machine for one in (*base, *head)) <= 0:
        return None
    x = [[math.log(one.machine) for one in side] for side in (base, head)]
    y = [[math.log(one.time) for one in side] for side in (base, head)]
    squares = sum(_products(side, side) for side in x)
    if squares < STILL:
        return None
    products = sum(map(_products, x, y))
    slope = min(1.0, max(0.0, products / squares))
    total = sum(_products(side, side) for side in y)
    return _Line(
        slope=slope,
        apart=fmean(x[1]) - fmean(x[0]),
        squares=squares,
        residual=max(0.0, total - 2 * slope * products + slope**2 * squares),
        base=len(base),
        head=len(head),
    )


def _products(x: Sequence[float], y: Sequence[float]) -> float:
    """Sum of the products of the deviations from the means."""
    return sum((a - fmean(x)) * (b - fmean(y)) for a, b in zip(x, y, strict=True))


def rounds_to_settle(base: Sequence[float], head: Sequence[float], budget: float) -> int | None:
    """Rounds a side with which the interval would leave the budget's limit, were ratio and variances as they are now.

    None where more than MOST_ROUNDS would be needed, or where there is no variance to reckon with.
    """
    found = interval(base, head)
    if found is None:
        return None
    distance = abs(math.log(found.ratio) - math.log1p(budget))
    spread = [variance([math.log(x) for x in side]) for side in (base, head)]
    return _enough(lambda n: _half_width(spread[0], n, spread[1], n) < distance)


def adjusted_to_settle(base: Sequence[Round], head: Sequence[Round], budget: float) -> int | None:
    """As rounds_to_settle, of ``adjusted``."""
    found, line = adjusted(base, head), _line(base, head)
    if found is None or line is None:
        return None
    distance = abs(math.log(found.ratio) - math.log1p(budget))
    return _enough(lambda n: line.half_width(2 * n / (line.base + line.head)) < distance)


def _enough(settled: Callable[[int], bool]) -> int | None:
    return next((n for n in range(FEWEST_ROUNDS, MOST_ROUNDS + 1) if settled(n)), None)
