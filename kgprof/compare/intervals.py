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
step that waits for the GPU and 1.0 for one that waits for the host.
A program that slows its own machine down, with threads that spin for instance, has that taken off as well.

The loop is measured with an error too, and that makes a slope too small (W. A. Fuller, Measurement Error Models, 1987,
1.1). How much of the loop's movement is that error is known from its samples within a round. The interval holds what
the slope is as seen and what it is without that error; where the error is half of the movement or more, no slope is
seen. Nor is one used beyond FARTHEST: a dispatch mode that the program left on makes the loop take three times as long.
And the interval is no wider than a step that follows the loop not at all and one that follows it wholly need.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, variance

FEWEST_ROUNDS = 2  # on either side: of one there is no variance
MOST_ROUNDS = 1000  # that are worth naming: beyond, the effect is too near to the budget to settle

STILL = 1e-12  # sum of squares of a loop's logarithms: it took the same time to a millionth, and tells no slope
FARTHEST = math.log(1.5)  # between the sides: beyond, more than the minute differs
SEEN = 0.5  # the share of the loop's movement within the sides that is the machine's and not the error of timing it

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
    slope: float = 0.0  # by which the time follows the host's loop

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
    return t_quantile(_satterthwaite(parts, (base_rounds, head_rounds))) * math.sqrt(error)


def _satterthwaite(parts: tuple[float, float], rounds: tuple[int, int]) -> float:
    """Degrees of freedom of the sum of two squared errors."""
    return float(sum(parts) ** 2 / sum(part**2 / (n - 1) for part, n in zip(parts, rounds, strict=True)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    time: float
    machine: float  # what the machine's own loop took beside it, in any unit
    error: float  # standard error of ``machine``'s logarithm


def adjusted(base: Sequence[Round], head: Sequence[Round]) -> Interval | None:
    """None where ``interval`` is, and where the loop tells no slope."""
    outer = _either(base, head)
    lines = () if outer is None else _lines(base, head)
    if outer is None or not lines:
        return None
    low = min(line.middle - line.half_width(line.rounds) for line in lines)
    high = max(line.middle + line.half_width(line.rounds) for line in lines)
    return replace(
        outer,
        ratio=math.exp(lines[0].middle),
        low=math.exp(max(low, math.log(outer.low))),
        high=math.exp(min(high, math.log(outer.high))),
        machine=math.exp(lines[0].slope * lines[0].apart),
        slope=lines[0].slope,
    )


def _either(base: Sequence[Round], head: Sequence[Round]) -> Interval | None:
    """Welch's, for a step that follows the loop not at all and for one that follows it wholly."""
    if min((one.machine for one in (*base, *head)), default=0.0) <= 0:
        return None
    measured = interval([one.time for one in base], [one.time for one in head])
    followed = interval([one.time / one.machine for one in base], [one.time / one.machine for one in head])
    if measured is None or followed is None:
        return None
    return replace(measured, low=min(measured.low, followed.low), high=max(measured.high, followed.high))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Line:
    """The times follow the loop by ``slope``. All of logarithms; of two sides, base's first."""

    slope: float
    middle: float  # how far the times are apart without the machine's part
    apart: float  # of the loop: head's mean less base's
    rounds: tuple[int, int]
    squares: tuple[float, float]  # of the loop about each side's mean
    residuals: tuple[float, float]  # sums of squares of the times about the line

    def half_width(self, rounds: tuple[int, int]) -> float:
        """With so many rounds, were variances as they are. Sides of as many rounds share a variance: with theirs
        unequal the quotient is the same and t's hardly another (Box, Annals of Mathematical Statistics 25, 1954)."""
        total = sum(self.rounds)
        each = list(zip(self.residuals, self.squares, self.rounds, rounds, strict=True))
        variances = [residual / (now - 1) * (total - 2) / (total - 3) for residual, _, now, _ in each]
        squares = [square * then / now for _, square, now, then in each]
        parts = variances[0] / rounds[0], variances[1] / rounds[1]
        if sum(parts) == 0:
            return 0.0
        of_slope = sum(v * s for v, s in zip(variances, squares, strict=True)) / sum(squares) ** 2
        alike = rounds[0] == rounds[1]
        degrees = sum(rounds) - 3 if alike else _satterthwaite(parts, rounds) - 1
        return t_quantile(degrees) * math.sqrt(sum(parts) + self.apart**2 * of_slope)


def _lines(base: Sequence[Round], head: Sequence[Round]) -> tuple[_Line, ...]:
    """With the slope as it is seen, and as it is without the error of the loop; empty where that error hides it."""
    x = [[math.log(one.machine) for one in side] for side in (base, head)]
    y = [[math.log(one.time) for one in side] for side in (base, head)]
    squares = [_products(side, side) for side in x]
    noise = sum((len(side) - 1) / len(side) * sum(one.error**2 for one in side) for side in (base, head))
    moved, products = sum(squares), sum(map(_products, x, y))
    if moved < STILL or moved - noise < SEEN * moved or abs(fmean(x[1]) - fmean(x[0])) > FARTHEST:
        return ()
    slopes = (min(1.0, max(0.0, products / over)) for over in (moved, moved - noise))
    return tuple(_line(x, y, slope) for slope in slopes)


def _line(x: Sequence[Sequence[float]], y: Sequence[Sequence[float]], slope: float) -> _Line:
    left = [[b - slope * a for a, b in zip(*side, strict=True)] for side in zip(x, y, strict=True)]
    return _Line(
        slope=slope,
        middle=fmean(left[1]) - fmean(left[0]),
        apart=fmean(x[1]) - fmean(x[0]),
        rounds=(len(x[0]), len(x[1])),
        squares=(_products(x[0], x[0]), _products(x[1], x[1])),
        residuals=(_products(left[0], left[0]), _products(left[1], left[1])),
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
    """As rounds_to_settle, of ``adjusted``. None too where the limit lies between the slope's two readings."""
    lines = _lines(base, head) if adjusted(base, head) is not None else ()
    if not lines:
        return None
    beyond = [line.middle - math.log1p(budget) for line in lines]
    if min(beyond) <= 0 <= max(beyond):
        return None
    return _enough(lambda n: all(line.half_width((n, n)) < abs(far) for line, far in zip(lines, beyond, strict=True)))


def _enough(settled: Callable[[int], bool]) -> int | None:
    return next((n for n in range(FEWEST_ROUNDS, MOST_ROUNDS + 1) if settled(n)), None)
