"""Is one set of rounds slower than another? An interval for the ratio of two times, and what it says of a budget.

Method: Welch's interval (B. L. Welch, Biometrika 34, 1947: unequal variances, Satterthwaite's degrees of freedom) for
the difference of the means of the logarithms of the rounds' medians, at 95 %, two-sided; its exponential is an interval
for head over base. The logarithm makes it symmetrical (base over head has the inverse interval) and a ratio. A round is
a fresh process, so that its median is one independent sample; the steps within one are not. What drifts between the two
recordings as a whole (another neighbour on the machine, another clock) is in neither variance, and so not in here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance

FEWEST_ROUNDS = 2  # on either side: of one there is no variance
MOST_ROUNDS = 1000  # that are worth naming: beyond, the effect is too near to the budget to settle

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
    """For head over base. ``base`` and ``head`` are geometric means of their samples, ``ratio`` their quotient."""

    base: float
    head: float
    ratio: float
    low: float
    high: float

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


def rounds_to_settle(base: Sequence[float], head: Sequence[float], budget: float) -> int | None:
    """Rounds a side with which the interval would leave the budget's limit, were ratio and variances as they are now.

    None where more than MOST_ROUNDS would be needed, or where there is no variance to reckon with.
    """
    found = interval(base, head)
    if found is None:
        return None
    distance = abs(math.log(found.ratio) - math.log1p(budget))
    spread = [variance([math.log(x) for x in side]) for side in (base, head)]
    enough = (n for n in _candidates() if _half_width(spread[0], n, spread[1], n) < distance)
    return next(enough, None)


def _candidates() -> Sequence[int]:
    return range(FEWEST_ROUNDS, MOST_ROUNDS + 1)
