"""Is one set of rounds slower than another? An interval for the ratio of two times, and what it says of a budget.

Everything is of the logarithms of the rounds' medians, two-sided. A round is a fresh process, so that its median is one
independent sample; the steps within one are not.

``interval`` is for sides that were recorded one after the other: Welch's (B. L. Welch, Biometrika 34, 1947: unequal
variances, Satterthwaite's degrees of freedom). What drifts between the two recordings (another neighbour on the
machine) is in neither variance: ``machine_drift`` checks for it.

``paired`` is for sides that were recorded in turn, pair by pair, so that drift is nearly the same on both sides of a
pair and changes its sign from one pair to the next: Student's t over the pairs' ratios, which are ``ratio_in_turn``
where the processes of a pair took turns, and the quotients of their medians where one ran after the other. The
recording ends as soon as the budget is decided, so the interval is taken again and again. It is a repeated confidence
interval (C. Jennison and B. W. Turnbull, Journal of the Royal Statistical Society B 51, 1989, 305-361): those of all
LOOKS together hold the true ratio with a probability of 95 %, whichever rule ends the recording. Look k of at most N
pairs spends f(n_k / N) - f(n_(k-1) / N) of the 5 %, with f(t) = t ** SPENDING (the power family of K. Kim and D. L.
DeMets, Biometrika 74, 1987, 149-154). Each look has the quantile of its own share, so by Bonferroni's inequality the
sum holds however the looks depend on each other.
"""

import functools
import math
from collections.abc import Sequence
from statistics import fmean, median, variance
from typing import NamedTuple

import msgspec

from kgprof import model as m

FEWEST_ROUNDS = 2  # on either side: of one there is no variance
MOST_ROUNDS = 1000  # that are worth naming: beyond, the effect is too near to the budget to settle
ALPHA = 0.05  # intervals hold the truth in 95 %
FIRST_LOOK, EVERY = 4, 2  # pairs: whole ABBA at the first look, and as many AB as BA at each
SPENDING = 2.0
HOST, DEVICE = "host", "device"
ONE_ROUND = m.Skipped(reason="an interval needs at least two rounds per side")


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """For head over base. ``base`` and ``head`` are geometric means of their samples, ``ratio`` is their quotient."""

    base: float
    head: float
    ratio: float
    low: float
    high: float

    def verdict(self, budget: float) -> m.MetricVerdict:
        """``budget``: the share by which head may take longer, 0.05 for 5 %."""
        if self.low > 1 + budget:
            return m.MetricVerdict.WORSE
        if self.high < 1 / (1 + budget):
            return m.MetricVerdict.BETTER
        return m.MetricVerdict.SAME if self.high <= 1 + budget else m.MetricVerdict.INCONCLUSIVE


class Pair(NamedTuple):
    """The times of two processes, and head's over base's."""

    base: float
    head: float
    ratio: float


@functools.lru_cache(maxsize=4096)
def t_quantile(degrees: int, alpha: float = ALPHA) -> float:
    """What Student's t exceeds in absolute value with probability ``alpha``; its distribution is a finite series
    (Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4)."""

    def within(angle: float) -> float:
        cosine, odd = math.cos(angle), degrees % 2
        term = total = (cosine if odd else 1.0) if degrees > 1 else 0.0
        for power in range(3 if odd else 2, degrees - 1, 2):
            term *= cosine * cosine * (power - 1) / power
            total += term
        return 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total

    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if within(middle) < 1 - alpha else (low, middle)
    return math.sqrt(degrees) * math.tan(low)


def _interval(base: Sequence[float], head: Sequence[float], half_width: float) -> Interval:
    """Of the logarithms."""
    middle = fmean(head) - fmean(base)
    ends = (fmean(base), fmean(head), middle, middle - half_width, middle + half_width)
    base_mean, head_mean, ratio, low, high = map(math.exp, ends)
    return Interval(base=base_mean, head=head_mean, ratio=ratio, low=low, high=high)


# ---------------------------------------------------------------- sides recorded one after the other


def interval(base: Sequence[float], head: Sequence[float]) -> Interval | None:
    """None where a side has too few rounds, or a time that is no time (0 or less)."""
    if min(len(base), len(head)) < FEWEST_ROUNDS or min(*base, *head) <= 0:
        return None
    below, above = [math.log(x) for x in base], [math.log(x) for x in head]
    return _interval(below, above, _welch((variance(below), variance(above)), (len(below), len(above))))


def _welch(variances: tuple[float, float], rounds: tuple[int, int]) -> float:
    """Half the width of the interval for the difference of two means of logarithms."""
    parts = variances[0] / rounds[0], variances[1] / rounds[1]
    if not sum(parts):
        return 0.0
    degrees = sum(parts) ** 2 / sum(part**2 / (n - 1) for part, n in zip(parts, rounds, strict=True))
    return t_quantile(max(1, math.floor(degrees + 1e-9))) * math.sqrt(sum(parts))  # 1e-9: 3.9999999999 is 4, rounded


def rounds_to_settle(base: Sequence[float], head: Sequence[float], budget: float) -> int | None:
    """Rounds a side with which the interval would leave the budget's limit, were ratio and variances as they are now.

    None where more than MOST_ROUNDS would be needed, or where there is no variance to reckon with.
    """
    measured = interval(base, head)
    if measured is None:
        return None
    distance = abs(math.log(measured.ratio) - math.log1p(budget))
    variances = variance([math.log(x) for x in base]), variance([math.log(x) for x in head])
    counts = range(FEWEST_ROUNDS, MOST_ROUNDS + 1)
    return next((n for n in counts if _welch(variances, (n, n)) < distance), None)


def machine_drift(base: m.RunReport, head: m.RunReport) -> tuple[m.MachineDrift, ...] | m.Skipped:
    """How the two loops that check the machine's speed differ. Skipped with the reason of the side that has none."""
    before, after = (run.rounds.machine if isinstance(run.rounds, m.Rounds) else ONE_ROUND for run in (base, head))
    if isinstance(before, m.Skipped):
        return before
    if isinstance(after, m.Skipped):
        return after
    loops = {HOST: interval(before.host_us, after.host_us), DEVICE: interval(before.device_us, after.device_us)}
    return (
        tuple(
            m.MachineDrift(loop=loop, base=each.base, head=each.head, ratio=each.ratio, low=each.low, high=each.high)
            for loop, each in loops.items()
            if each is not None
        )
        or ONE_ROUND
    )


def moved(drift: Sequence[m.MachineDrift], budget: float) -> tuple[m.MachineDrift, ...]:
    """The loops that differ by more than a budget: a time of these rounds says nothing about the program."""
    return tuple(loop for loop in drift if max(loop.ratio, 1 / loop.ratio) > 1 + budget)


def drift_words(drift: Sequence[m.MachineDrift]) -> str:
    """ "the machine itself was 9.8 % slower in head's rounds (CPU check loop)"."""
    each = [
        f"{100 * abs(loop.ratio - 1):.1f} % {'slower' if loop.ratio > 1 else 'faster'} in head's rounds "
        f"({'CPU check loop' if loop.loop == HOST else 'check kernel'})"
        for loop in drift
    ]
    return f"the machine itself was {' and '.join(each)}"


# ---------------------------------------------------------------- sides recorded in turn


def looks(most: int) -> tuple[int, ...]:
    """After how many of ``most`` pairs it is looked whether the budget is decided."""
    return (*range(FIRST_LOOK, most, EVERY), most)


def share(look: int, most: int) -> float:
    """What of ALPHA is spent at this look."""
    planned = looks(most)
    before = planned[planned.index(look) - 1] if look != planned[0] else 0
    return float(ALPHA * ((look / most) ** SPENDING - (before / most) ** SPENDING))


def last_look(pairs: int, most: int) -> int:
    """The last one that so many pairs have come to; 0: none yet."""
    return max((look for look in looks(most) if look <= pairs), default=0)


def paired(pairs: Sequence[Pair], look: int, most: int) -> Interval | None:
    """Of pairs in order, at a look; some may have been lost. None for fewer than two, or a time that is none."""
    if len(pairs) < FEWEST_ROUNDS or min(min(each) for each in pairs) <= 0:
        return None
    apart = [math.log(each.ratio) for each in pairs]
    half = t_quantile(len(apart) - 1, share(look, most)) * math.sqrt(variance(apart) / len(apart))
    middle = fmean(math.log(each.base * each.head) / 2 for each in pairs)
    return _interval([middle - fmean(apart) / 2], [middle + fmean(apart) / 2], half)


def ratio_in_turn(base: Sequence[float], head: Sequence[float]) -> float | None:
    """Of two processes that timed the same pieces of work in turn: the median of the pieces' ratios. None without any.

    Where a core is now fast and now slow, the median step of a process is of the one speed or of the other, as it had
    more of; two pieces side by side had the same one, but for a few.
    """
    both = [above / below for below, above in zip(base, head, strict=False) if below > 0 and above > 0]
    return median(both) if both else None
