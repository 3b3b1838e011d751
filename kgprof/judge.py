"""Is one program faster than another? Every sentence, table and colour that says so asks ``judge``.

What is known about two sides decides which of three rules holds; the first that can is taken.

1. **Pairs in turn** (`compare --record`): Student's t over the logarithms of the pairs' ratios,
  each of which is
   ``ratio_in_turn`` where the two processes took turns, and the quotient of their medians where one
   ran after the
   other. Drift of the machine is nearly the same on both sides of a pair and changes its sign from
   pair to pair. The
   recording ends as soon as the limit is decided, so the interval is taken again and again: it is a
   repeated confidence
   interval (C. Jennison and B. W. Turnbull, Journal of the Royal Statistical Society B 51, 1989,
   305-361). Look k of at
   most N pairs spends f(n_k / N) - f(n_(k-1) / N) of ALPHA, with f(t) = t ** SPENDING (the power
   family of K. Kim and
   D. L. DeMets, Biometrika 74, 1987, 149-154). Each look has the quantile of its own share, so by
   Bonferroni's
   inequality the sum holds however the looks depend on each other.
2. **Rounds**: a round is a fresh process, so its median is one independent sample; the steps within
  one are not.
   Welch's interval for the difference of the means of their logarithms (B. L. Welch, Biometrika 34,
   1947: unequal
   variances, Satterthwaite's degrees of freedom). Rounds that do not overlap decide also where that
   interval is wide:
   if so many of them do so by chance in at most ALPHA of all cases (the exact rank test: 2 in all
   the ways to part
   them), or if they are APART.
3. **One process each**: the ranges must not overlap, and the medians must be APART; processes of
  one program were seen
   1.4 and 1.5 times apart on an H200 (torch 2.11, the evaluator). Times that vary more than NOISY
     within one process
   rank nothing. A range over several processes, as that of a sum of parts, has their distance in it
   already.

An interval that leaves out 1 decides, and one that lies within LEVEL_WITHIN of 1 says that both are
level.
"""

import functools
import math
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from statistics import fmean, median, variance
from typing import ClassVar, NamedTuple

from kgprof import model as m

LEAST = 1e-12  # of a time in any unit; a ratio to less may be larger than any number
ALPHA = 0.05  # intervals hold the truth in 95 %
SPENDING = 2.0
COLD_ROUNDS = range(2, 5)  # three pairs of processes on empty caches, judged after the last
FIRST_LOOK, EVERY = 4, 2  # pairs: whole ABBA at the first look, and as many AB as BA at each
FEWEST_ROUNDS = 2  # on either side: of one there is no variance
MOST_ROUNDS = 1000  # that are worth naming: beyond, the effect is too near to the limit to settle
FEWEST = 2  # samples of one process
NOISY = 2.0  # the long samples of one process over its short ones
APART = 1.5
LEVEL_WITHIN = 1.1


class Doubt(StrEnum):
    """Why nobody can tell which is faster, with places for what was measured."""

    NO_TIME = "a time is zero or was not measured"
    ONCE = "measured once (n = {fewest})"
    VARIED = "the times of {noisy} varied {variation}× within one process"
    OVERLAP = "their spreads overlap ({ranges})"
    CLOSE = f"one process each ranks runs that are {APART:g}× apart or more"
    ONE_ROUND = "an interval needs at least two rounds per side"
    STRADDLES = (
        "{second} takes {low} to {high}× as long as {first} (95 % interval, {rounds} processes)"
    )


class InTurn(NamedTuple):
    """How many pairs two sides that were recorded in turn have."""

    planned: int
    made: int  # with those that were lost: at which look one stands is not for chance to say

    @property
    def look(self) -> int:
        """The last one that so many pairs have come to; 0: none yet."""
        return max((look for look in looks(self.planned) if look <= self.made), default=0)


class Samples(m.Model, kw_only=False):
    """What was measured of one program, in any unit of time.

    Of one process its median, and its range: eight of ten of its steps, or all of its whole
    evaluations. Of several processes a median each, by the number of the round; and of rounds that
    took turns with another side's the pieces of work in their order."""

    median: float
    low: float
    high: float
    count: int
    processes: int = 1  # that the range is over
    rounds: Mapping[int, float] = {}
    pieces: Mapping[int, Sequence[float]] = {}

    @property
    def variation(self) -> float:
        """How many times the short samples the long ones are."""
        if self.low <= LEAST:
            return 1.0
        return self.high / self.low

    @property
    def is_steady(self) -> bool:
        """Whether the median stands for the times: no run is said to take it otherwise."""
        return self.variation <= NOISY


class Interval(m.Model, kw_only=False):
    """The time of the second side over that of the first. ``first`` and ``second``: a middle time
    of each."""

    first: float
    second: float
    ratio: float
    low: float
    high: float


class Faster(m.Model, kw_only=False):
    """One of the two is."""

    interval: Interval

    @property
    def verdict(self) -> m.Judged:
        """About the first side, as of every answer."""
        if self.interval.ratio > 1:
            return m.Judged.FASTER
        return m.Judged.SLOWER


class Level(m.Model, kw_only=False):
    """They take equally long; of two sides with a limit, the second one takes no longer than that
    allows."""

    interval: Interval
    verdict: ClassVar = m.Judged.LEVEL


class Unknown(m.Model, kw_only=False):
    why: Doubt
    interval: Interval | None = None  # where one was measured
    verdict: ClassVar = m.Judged.UNDECIDED


Answer = Faster | Level | Unknown


def judge(
    first: Samples, second: Samples, limit: float | None = None, in_turn: InTurn | None = None
) -> Answer:
    """Which of the two is faster.

    ``limit``: the share by which the second side may take longer, 0.05 for 5 %. It is held against
    an interval only: neither one process each nor the order of the rounds says by how much a side
    is slower.
    """
    measured = None
    if in_turn is None:
        measured = welch(first.rounds.values(), second.rounds.values())
    elif in_turn.look:
        measured = paired(pairs(first, second, in_turn), in_turn)
    if measured is not None:
        ranked = limit is None and in_turn is None
        if ranked and _rounds_apart(first.rounds.values(), second.rounds.values()):
            return Faster(measured)
        return decided(measured, limit)
    if limit is not None:
        return Unknown(Doubt.ONE_ROUND)
    return _by_ranges(first, second)


def decided(measured: Interval, limit: float | None = None) -> Answer:
    """What an interval says."""
    beyond = 1 + (limit or 0.0)
    if measured.low > beyond or measured.high < 1 / beyond:
        return Faster(measured)
    level = measured.high <= beyond
    if limit is None:
        level = measured.low >= 1 / LEVEL_WITHIN and measured.high <= LEVEL_WITHIN
    if level:
        return Level(measured)
    return Unknown(Doubt.STRADDLES, measured)


def _rounds_apart(first: Collection[float], second: Collection[float]) -> bool:
    gap = max(min(second) / max(first), min(first) / max(second))
    by_chance = 2 / math.comb(len(first) + len(second), len(first))
    return gap >= APART or (gap > 1 and by_chance <= ALPHA)


def _by_ranges(first: Samples, second: Samples) -> Answer:
    if min(first.low, second.low) <= LEAST:
        return Unknown(Doubt.NO_TIME)
    measured = Interval(
        first.median,
        second.median,
        second.median / first.median,
        second.low / first.high,
        second.high / first.low,
    )
    in_one = min(first.processes, second.processes) == 1
    by = max(measured.ratio, 1 / measured.ratio)
    if in_one and min(first.count, second.count) < FEWEST:
        return Unknown(Doubt.ONCE)
    if in_one and not (first.is_steady and second.is_steady):
        return Unknown(Doubt.VARIED, measured)
    if measured.low <= 1 <= measured.high:
        if by <= LEVEL_WITHIN:
            return Level(measured)
        return Unknown(Doubt.OVERLAP, measured)
    if in_one and by < APART:
        return Unknown(Doubt.CLOSE, measured)
    return Faster(measured)


# ---------------------------------------------------------------- intervals


def welch(first: Collection[float], second: Collection[float]) -> Interval | None:
    """Of rounds of which none belongs to another. None for too few of them, or a time that is
    none."""
    if min(len(first), len(second)) < FEWEST_ROUNDS or min(*first, *second) <= LEAST:
        return None
    logs = [*map(math.log, first)], [*map(math.log, second)]
    half = _half_width((variance(logs[0]), variance(logs[1])), (len(first), len(second)))
    return _interval(fmean(logs[0]), fmean(logs[1]), half)


def _interval(first: float, second: float, half_width: float) -> Interval:
    """Of logarithms."""
    middle = second - first
    ends = first, second, middle, middle - half_width, middle + half_width
    one, other, ratio, low, high = map(math.exp, ends)
    return Interval(one, other, ratio, low, high)


def _half_width(variances: tuple[float, float], rounds: tuple[int, int]) -> float:
    """Of Welch's interval for the difference of two means."""
    parts = variances[0] / rounds[0], variances[1] / rounds[1]
    if not sum(parts):
        return 0.0
    degrees = sum(parts) ** 2 / sum(
        part**2 / (n - 1) for part, n in zip(parts, rounds, strict=True)
    )
    whole = max(1, math.floor(degrees + 1e-9))  # 1e-9: 3.9999999999 is 4, rounded
    return t_quantile(whole) * math.sqrt(sum(parts))


def rounds_to_settle(first: Samples, second: Samples, limit: float) -> int | None:
    """Rounds a side with which the interval would leave the limit, were ratio and variances as they
    are now.

    None where more than MOST_ROUNDS would be needed, or where there is no variance to reckon with.
    """
    rounds = first.rounds.values(), second.rounds.values()
    measured = welch(*rounds)
    if measured is None:
        return None
    distance = abs(math.log(measured.ratio) - math.log1p(limit))
    variances = variance(map(math.log, rounds[0])), variance(map(math.log, rounds[1]))
    counts = range(FEWEST_ROUNDS, MOST_ROUNDS + 1)
    at = bisect_left(counts, True, key=lambda n: _half_width(variances, (n, n)) < distance)
    if at == len(counts):
        return None
    return counts[at]


@functools.lru_cache(maxsize=4096)
def t_quantile(degrees: int, alpha: float = ALPHA) -> float:
    """What Student's t exceeds in absolute value with probability ``alpha``; its distribution is a
    finite series (Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4)."""

    def within(angle: float) -> float:
        cosine = math.cos(angle)
        odd = degrees % 2
        term = 1.0
        if odd:
            term = cosine
        if degrees == 1:
            term = 0.0
        total = term
        for power in range(2 + odd, degrees - 1, 2):
            term *= cosine * cosine * (power - 1) / power
            total += term
        if odd:
            return 2 / math.pi * (angle + math.sin(angle) * total)
        return math.sin(angle) * total

    low = 0.0
    high = math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        if within(middle) < 1 - alpha:
            low = middle
        else:
            high = middle
    return math.sqrt(degrees) * math.tan(low)


# ---------------------------------------------------------------- pairs in turn


class Pair(NamedTuple):
    """The times of two processes, and the second one's over the first one's."""

    first: float
    second: float
    ratio: float


def pairs(first: Samples, second: Samples, in_turn: InTurn) -> list[Pair]:
    """The rounds that both sides have, up to the last look. Round 1 is in none: its caches were
    cold."""
    return pairs_of(first, second, range(2, (in_turn.look or in_turn.planned) + 2))


def pairs_of(first: Samples, second: Samples, numbers: Iterable[int]) -> list[Pair]:
    """Of these rounds, those that both sides have."""
    made = []
    for number in numbers:
        if number in first.rounds and number in second.rounds:
            one = first.rounds[number]
            other = second.rounds[number]
            ratio = ratio_in_turn(first.pieces.get(number, ()), second.pieces.get(number, ()))
            made.append(Pair(one, other, ratio or other / one))
    return made


FOUR_OF_FIVE, TWO_SIDED = 0.8416, 1.9600  # quantiles of the normal distribution: 80 %, 97.5 %


def looks(planned: int) -> tuple[int, ...]:
    """After how many of so many pairs it is looked whether the limit is decided."""
    return (*range(FIRST_LOOK, planned, EVERY), planned)


def share(look: int, planned: int) -> float:
    """What of ALPHA is spent at this look."""
    every = (0, *looks(planned))
    before = every[every.index(look) - 1]
    return float(ALPHA * ((look / planned) ** SPENDING - (before / planned) ** SPENDING))


def paired(of: Sequence[Pair], in_turn: InTurn) -> Interval | None:
    """At its look; some pairs may have been lost. None for fewer than two, or a time that is
    none."""
    if len(of) < FEWEST_ROUNDS or min(min(pair) for pair in of) <= LEAST:
        return None
    apart = [math.log(pair.ratio) for pair in of]
    half = t_quantile(len(of) - 1, share(in_turn.look, in_turn.planned)) * math.sqrt(
        variance(apart) / len(of)
    )
    middle = fmean(math.log(pair.first * pair.second) / 2 for pair in of)
    return _interval(middle - fmean(apart) / 2, middle + fmean(apart) / 2, half)


def could_have_seen(low: float, high: float) -> float:
    """The share by which a second side must be slower to be found above "no change" in four of
    five recordings whose interval of 95 % is as wide as ``low`` to ``high``: its half width and the
    normal quantile of 80 % (J. Cohen, Statistical Power Analysis, 1988). Of few processes it is a
    little too small."""
    half = math.log(high / low) / 2
    return math.exp(half * (1 + FOUR_OF_FIVE / TWO_SIDED)) - 1


def ratio_in_turn(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Of two processes that timed the same pieces of work in turn: the median of the pieces'
    ratios. None without any.

    Where a core is now fast and now slow, the median step of a process is of the one speed or of
    the other, as it had more of; two pieces side by side had the same one, but for a few.
    """
    both = [
        after / before
        for before, after in zip(first, second, strict=False)
        if before > 0 and after > 0
    ]
    if not both:
        return None
    return median(both)
