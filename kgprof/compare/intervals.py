"""Is one set of rounds slower than another? An interval for the ratio of two times, and what it says of a budget.

Everything is of the logarithms of the rounds' medians, at 95 %, two-sided. A round is a fresh process, so that its
median is one independent sample; the steps within one are not. docs/compare.md says what each choice is for.

``interval`` is Welch's (B. L. Welch, Biometrika 34, 1947: unequal variances, Satterthwaite's degrees of freedom). What
drifts between two recordings as a whole (another neighbour on the machine) is in neither variance, and so not in it.

``adjusted`` takes that out where each round also timed the machine itself: the analysis of covariance with one
covariate (Snedecor and Cochran, Statistical Methods, 6th edition, 1967, chapter 14). The slope within the sides, kept
between 0 (the step waits for other things) and 1 (for nothing else), times what the loop differs between the sides is
the machine's part. The loop's own error makes a slope too small (W. A. Fuller, Measurement Error Models, 1987, 1.1):
the interval holds the slope as seen and without that error, and is no wider than steps need that follow the loop not at
all and wholly.

``widened`` is for a loop whose slope cannot be seen (the device's moves little and then all at once): the interval is
what it would be if the step had slowed down as much as the loop may have.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, variance

from kgprof import model as m

FEWEST_ROUNDS = 2  # on either side: of one there is no variance
MOST_ROUNDS = 1000  # that are worth naming: beyond, the effect is too near to the budget to settle

STILL = 1e-12  # sum of squares of a loop's logarithms: it took the same time to a millionth, and tells no slope
FARTHEST = math.log(1.5)  # between the sides: beyond, more than the minute differs
SEEN = 0.5  # the share of the loop's movement within the sides that is the machine's and not the error of timing it

LEAST_DRIFT = 0.005  # below it a drift is nothing to a budget, however sure
# A loop that may have taken so many times as long, or so many times less, shows a machine that was not steady, also
# where chance could do it: one busy program on one of two cores made the device's loop take 0.7 to 49 times as long,
# and an unchanged evaluation 51 to 153 times, because OpenMP's threads wait for each other.
UNSTEADY = 1.5
HOST, DEVICE = "host", "device"
ONE_ROUND = m.Skipped(reason="an interval needs at least two rounds per side")

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

    def verdict(self, budget: float) -> m.MetricVerdict:
        """``budget``: the share by which head may take longer, 0.05 for 5 %."""
        if self.low > 1 + budget:
            return m.MetricVerdict.WORSE
        if self.high < 1 / (1 + budget):
            return m.MetricVerdict.BETTER
        return m.MetricVerdict.SAME if self.high <= 1 + budget else m.MetricVerdict.INCONCLUSIVE


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
    half = _half_width((variance(below), variance(above)), (len(below), len(above)))
    ends = (fmean(below), fmean(above), middle, middle - half, middle + half)
    base_mean, head_mean, ratio, low, high = map(math.exp, ends)
    return Interval(base=base_mean, head=head_mean, ratio=ratio, low=low, high=high)


def _half_width(variances: tuple[float, float], rounds: tuple[int, int]) -> float:
    """Of the interval for the difference of two means of logarithms."""
    parts = variances[0] / rounds[0], variances[1] / rounds[1]
    return t_quantile(_satterthwaite(parts, rounds)) * math.sqrt(sum(parts)) if sum(parts) else 0.0


def _satterthwaite(parts: tuple[float, float], rounds: tuple[int, int]) -> float:
    """Degrees of freedom of the sum of two squared errors."""
    return float(sum(parts) ** 2 / sum(part**2 / (n - 1) for part, n in zip(parts, rounds, strict=True)))


def rounds_to_settle(base: Sequence[float], head: Sequence[float], budget: float) -> int | None:
    """Rounds a side with which the interval would leave the budget's limit, were ratio and variances as they are now.

    None where more than MOST_ROUNDS would be needed, or where there is no variance to reckon with.
    """
    measured = interval(base, head)
    if measured is None:
        return None
    distance = abs(math.log(measured.ratio) - math.log1p(budget))
    variances = variance([math.log(x) for x in base]), variance([math.log(x) for x in head])
    return _fewest(lambda n: _half_width(variances, (n, n)) < distance)


def _fewest(settled: Callable[[int], bool]) -> int | None:
    return next((n for n in range(FEWEST_ROUNDS, MOST_ROUNDS + 1) if settled(n)), None)


# ---------------------------------------------------------------- with the host's loop as covariate


@dataclass(frozen=True, slots=True)
class Round:
    time: float
    machine: float  # what the machine's own loop took beside it, in any unit
    error: float  # standard error of ``machine``'s logarithm


def adjusted(base: Sequence[Round], head: Sequence[Round]) -> Interval | None:
    """None where ``interval`` is, and where the loop tells no slope."""
    measured = interval([each.time for each in base], [each.time for each in head])
    if measured is None or min(each.machine for each in (*base, *head)) <= 0:
        return None
    followed = interval([each.time / each.machine for each in base], [each.time / each.machine for each in head])
    lines = _lines(base, head)
    if followed is None or not lines:
        return None
    low = min(line.middle - line.half_width(line.rounds) for line in lines)
    high = max(line.middle + line.half_width(line.rounds) for line in lines)
    return replace(
        measured,
        ratio=math.exp(lines[0].middle),
        low=math.exp(max(low, math.log(min(measured.low, followed.low)))),
        high=math.exp(min(high, math.log(max(measured.high, followed.high)))),
        machine=math.exp(lines[0].slope * lines[0].apart),
        slope=lines[0].slope,
    )


def adjusted_to_settle(base: Sequence[Round], head: Sequence[Round], budget: float) -> int | None:
    """As rounds_to_settle, of ``adjusted``. None too where the limit lies between the slope's two readings."""
    if adjusted(base, head) is None:
        return None
    lines = _lines(base, head)
    beyond = [line.middle - math.log1p(budget) for line in lines]
    if min(beyond) <= 0 <= max(beyond):
        return None
    return _fewest(lambda n: all(line.half_width((n, n)) < abs(far) for line, far in zip(lines, beyond, strict=True)))


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
    x = [[math.log(each.machine) for each in side] for side in (base, head)]
    y = [[math.log(each.time) for each in side] for side in (base, head)]
    squares = [_products(side, side) for side in x]
    noise = sum((len(side) - 1) / len(side) * sum(each.error**2 for each in side) for side in (base, head))
    moved, products = sum(squares), sum(map(_products, x, y))
    if moved < STILL or moved - noise < SEEN * moved or abs(fmean(x[1]) - fmean(x[0])) > FARTHEST:
        return ()
    lines = []
    for over in (moved, moved - noise):
        slope = min(1.0, max(0.0, products / over))
        left = [[b - slope * a for a, b in zip(*side, strict=True)] for side in zip(x, y, strict=True)]
        line = _Line(
            slope=slope,
            middle=fmean(left[1]) - fmean(left[0]),
            apart=fmean(x[1]) - fmean(x[0]),
            rounds=(len(x[0]), len(x[1])),
            squares=(squares[0], squares[1]),
            residuals=(_products(left[0], left[0]), _products(left[1], left[1])),
        )
        lines.append(line)
    return tuple(lines)


def _products(x: Sequence[float], y: Sequence[float]) -> float:
    """Sum of the products of the deviations from the means."""
    return sum((a - fmean(x)) * (b - fmean(y)) for a, b in zip(x, y, strict=True))


# ---------------------------------------------------------------- was the machine itself slower


def rounds_of(run: m.RunReport, times: Sequence[float]) -> tuple[Round, ...]:
    """``times``, one a round, each with the host's loop of its round; empty where that is not known of each."""
    if not isinstance(run.rounds, m.Rounds) or isinstance(run.rounds.machine, m.Skipped):
        return ()
    each = (times, run.rounds.machine.host_us, run.rounds.host_error)
    return tuple(map(Round, *each)) if len({len(values) for values in each}) == 1 else ()


def machine_drift(base: m.RunReport, head: m.RunReport) -> tuple[m.MachineDrift, ...] | m.Skipped:
    """Of both loops. Skipped with the reason of the side that has none."""
    before, after = (run.rounds.machine if isinstance(run.rounds, m.Rounds) else ONE_ROUND for run in (base, head))
    if isinstance(before, m.Skipped):
        return before
    if isinstance(after, m.Skipped):
        return after
    loops = {HOST: interval(before.host_us, after.host_us), DEVICE: interval(before.device_us, after.device_us)}
    return tuple(drift_of(loop, within) for loop, within in loops.items() if within is not None) or ONE_ROUND


def drift_of(loop: str, within: Interval) -> m.MachineDrift:
    return m.MachineDrift(
        loop=loop, base=within.base, head=within.head, ratio=within.ratio, low=within.low, high=within.high
    )


def widened(measured: Interval, drift: Sequence[m.MachineDrift]) -> Interval:
    """To what it would be if the loops that drifted had not, by as much as they may have; of a time that waits for the
    host by a share that is known, they have the rest."""
    ends = [1.0, *(end for loop in notable(drift) for end in (loop.low, loop.high))]
    rest = 1 - measured.slope
    return replace(measured, low=measured.low / max(ends) ** rest, high=measured.high / min(ends) ** rest)


def notable(drift: Sequence[m.MachineDrift]) -> tuple[m.MachineDrift, ...]:
    """Those that are neither chance nor too little to matter, and those of which nothing is known."""
    return tuple(
        loop
        for loop in drift
        if (loop.beyond_chance and abs(loop.ratio - 1) >= LEAST_DRIFT) or max(loop.high, 1 / loop.low) > UNSTEADY
    )


def drift_words(drift: Sequence[m.MachineDrift]) -> str:
    """ "the machine itself was 9.8 % slower in head's rounds (host loop, 95 % +6.3 % to +13.4 %)"; empty for none."""
    each = [
        f"{100 * abs(loop.ratio - 1):.1f} % {'slower' if loop.ratio > 1 else 'faster'} in head's rounds "
        f"({loop.loop} loop, 95 % {100 * (loop.low - 1):+.1f} % to {100 * (loop.high - 1):+.1f} %)"
        if loop.beyond_chance
        else f"not steady ({loop.loop} loop, 95 % {loop.low:.2g} to {loop.high:.2g} × as long in head's rounds)"
        for loop in notable(drift)
    ]
    return f"the machine was {' and '.join(each)}" if each else ""
