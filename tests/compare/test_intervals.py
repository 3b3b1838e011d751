from __future__ import annotations

import math
import random
from dataclasses import replace
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgprof.compare.intervals import (
    MOST_ROUNDS,
    Interval,
    Round,
    adjusted,
    adjusted_to_settle,
    drift_of,
    interval,
    rounds_to_settle,
    t_quantile,
    widened,
)
from kgprof.model import MetricVerdict

TIMES = st.lists(st.floats(min_value=1.0, max_value=1e6), min_size=2, max_size=10)


def test_quantiles_of_t_are_those_of_the_closed_forms() -> None:
    """One degree of freedom is Cauchy's, two has a closed form, many are the normal distribution's."""
    p = 0.975
    assert t_quantile(1) == pytest.approx(math.tan(math.pi * (p - 0.5)), abs=5e-4)
    assert t_quantile(2) == pytest.approx((2 * p - 1) * math.sqrt(2 / (1 - (2 * p - 1) ** 2)), abs=5e-4)
    assert 1.96 < t_quantile(1e9) < 1.99


@pytest.mark.parametrize("degrees", [3, 4, 5, 8, 12, 20, 30, 40, 60, 100])
def test_quantiles_of_t_leave_a_fortieth_above(degrees: int) -> None:
    norm = math.gamma((degrees + 1) / 2) / (math.sqrt(degrees * math.pi) * math.gamma(degrees / 2))
    top, parts = t_quantile(degrees), 4000
    width = top / parts
    heights = (norm * (1 + (i * width) ** 2 / degrees) ** (-(degrees + 1) / 2) for i in range(parts + 1))
    simpson = sum(h * (1 if i in (0, parts) else 4 if i % 2 else 2) for i, h in enumerate(heights)) * width / 3

    assert 0.5 + simpson == pytest.approx(0.975, abs=5e-5)


def test_an_interval_worked_by_hand() -> None:
    """Logarithms 0, 0.1, 0.2 and 1, 1.1, 1.2: means 0.1 and 1.1, variances 0.01, four degrees of freedom."""
    found = interval([math.exp(x) for x in (0.0, 0.1, 0.2)], [math.exp(x) for x in (1.0, 1.1, 1.2)])

    assert found is not None
    half = 2.776 * math.sqrt(0.01 / 3 + 0.01 / 3)
    assert (math.log(found.ratio), math.log(found.low), math.log(found.high)) == pytest.approx((1, 1 - half, 1 + half))


@pytest.mark.parametrize(
    "sides", [([1.0], [1.0, 2.0]), ([1.0, 2.0], [1.0]), ([], [1.0, 2.0]), ([0.0, 1.0], [1.0, 2.0])]
)
def test_without_two_rounds_on_both_sides_there_is_no_interval(sides: tuple[list[float], list[float]]) -> None:
    assert interval(*sides) is None
    assert rounds_to_settle(*sides, 0.05) is None


@given(base=TIMES, head=TIMES)
def test_swapping_the_sides_inverts_the_interval(base: list[float], head: list[float]) -> None:
    there, back = interval(base, head), interval(head, base)

    assert there is not None
    assert back is not None
    assert (back.ratio, back.low, back.high) == pytest.approx((1 / there.ratio, 1 / there.high, 1 / there.low))


@given(base=TIMES, head=TIMES, budget=st.floats(min_value=0.0, max_value=1.0))
def test_swapping_the_sides_makes_worse_better(base: list[float], head: list[float], budget: float) -> None:
    there, back = interval(base, head), interval(head, base)

    assert there is not None
    assert back is not None
    if there.low > (1 + budget) * (1 + 1e-9):
        assert back.verdict(budget) == MetricVerdict.BETTER
    if there.high < 1 / (1 + budget) * (1 - 1e-9):
        assert back.verdict(budget) == MetricVerdict.WORSE


def test_the_interval_holds_the_true_ratio_nineteen_times_of_twenty() -> None:
    """Rounds of unequal noise, five and eight of them: Welch's case."""
    chance = random.Random(7)
    inside = 0
    for _ in range(2000):
        base = [math.exp(chance.gauss(0.0, 0.02)) for _ in range(5)]
        head = [1.1 * math.exp(chance.gauss(0.0, 0.06)) for _ in range(8)]
        found = interval(base, head)
        assert found is not None
        inside += found.low <= 1.1 <= found.high

    assert 0.94 <= inside / 2000 <= 0.97  # degrees of freedom are rounded down, so it is no narrower than 95 %


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (1.06, 1.2, MetricVerdict.WORSE),
        (1.04, 1.2, MetricVerdict.INCONCLUSIVE),
        (0.9, 1.2, MetricVerdict.INCONCLUSIVE),
        (1.01, 1.04, MetricVerdict.SAME),
        (0.97, 1.03, MetricVerdict.SAME),
        (0.96, 0.99, MetricVerdict.SAME),
        (0.5, 0.95, MetricVerdict.BETTER),
    ],
)
def test_an_interval_against_a_budget_of_five_percent(low: float, high: float, verdict: MetricVerdict) -> None:
    found = Interval(base=1.0, head=1.0, ratio=math.sqrt(low * high), low=low, high=high)

    assert found.verdict(0.05) == verdict


@settings(max_examples=50)
@given(ratio=st.floats(min_value=0.8, max_value=1.3), noise=st.floats(min_value=0.001, max_value=0.05))
def test_so_many_rounds_as_are_named_would_settle_it(ratio: float, noise: float) -> None:
    """Given rounds of the same mean and the same variance."""
    base = [math.exp(-noise), 1.0, math.exp(noise)]
    head = [ratio * x for x in base]
    settle = rounds_to_settle(base, head, 0.05)
    if settle is None or settle < 3:
        return
    more = _of_the_same_variance(base, settle), _of_the_same_variance(head, settle)
    fewer = _of_the_same_variance(base, settle - 1), _of_the_same_variance(head, settle - 1)

    found, before = interval(*more), interval(*fewer)
    assert found is not None
    assert before is not None
    assert found.verdict(0.05) != MetricVerdict.INCONCLUSIVE
    assert before.low <= 1.05 <= before.high


def _of_the_same_variance(side: list[float], rounds: int) -> list[float]:
    """Half of them below the mean and half above, one in the middle where the number is odd."""
    logs = [math.log(x) for x in side]
    mean = sum(logs) / len(logs)
    variance = sum((x - mean) ** 2 for x in logs) / (len(logs) - 1)
    pairs = rounds // 2
    away = math.sqrt(variance * (rounds - 1) / (2 * pairs))
    found = [math.exp(mean - away)] * pairs + [math.exp(mean + away)] * pairs
    return found + [math.exp(mean)] * (rounds - 2 * pairs)


# ---------------------------------------------------------------- with the machine's own speed


def paired(times: list[float], machine: list[float], error: float = 0.0) -> list[Round]:
    return [Round(time=time, machine=us, error=error) for time, us in zip(times, machine, strict=True)]


def simulated(
    draw: random.Random,
    *,
    rounds: int,
    host: float,
    follows: float,
    slower: float = 1.0,
    moves: float = 0.05,
    error: float = 0.0,
) -> tuple[list[Round], list[Round]]:
    """Two recordings on a machine whose host is ``host`` times as slow in head's; a step follows it by ``follows``.

    Processes differ by ``moves``, and the loop is timed with ``error``.
    """
    sides = []
    for drift, factor in ((1.0, 1.0), (host, slower)):
        speeds = [drift * math.exp(draw.gauss(0, moves)) for _ in range(rounds)]
        times = [factor * speed**follows * math.exp(draw.gauss(0, 0.02)) for speed in speeds]
        sides.append(paired(times, [speed * math.exp(draw.gauss(0, error)) for speed in speeds], error))
    return sides[0], sides[1]


def test_an_adjusted_interval_worked_by_hand() -> None:
    """Tenths: logarithms of the loop 0, 1, 2 on both sides but 1 apart, of the times 0, 0.6, 0.9 and 1.5, 1.6, 2.4.

    Within the sides the squares of the loop are 2 + 2 and the products 0.9 + 0.9, so that the slope is 0.45; the times'
    squares are 0.42 and 0.4867, of which 4 * 0.45^2 lie on the line. The means are 0.5 and 1.8333 apart by 1.3333.
    """
    base = paired([math.exp(x / 10) for x in (0.0, 0.6, 0.9)], [math.exp(x / 10) for x in (0.0, 1.0, 2.0)])
    head = paired([math.exp(x / 10) for x in (1.5, 1.6, 2.4)], [math.exp(x / 10) for x in (1.0, 2.0, 3.0)])

    found = adjusted(base, head)

    assert found is not None
    residual = 0.42 + 73 / 150 - 4 * 0.45**2
    half = 3.182 * math.sqrt(residual / 3 * (1 / 3 + 1 / 3 + 1 / 4))
    middle = 4 / 3 - 0.45
    assert found.machine is not None
    assert 10 * math.log(found.machine) == pytest.approx(0.45)
    assert tuple(10 * math.log(x) for x in (found.ratio, found.low, found.high)) == pytest.approx(
        (middle, middle - half, middle + half)
    )
    assert found.head / found.base == pytest.approx(found.ratio * found.machine)


def test_a_slower_machine_is_no_slower_program() -> None:
    """Of 1,000 pairs in which only the host became 12 % slower: Welch's interval blames the program in most."""
    draw = random.Random(3)
    pairs = [simulated(draw, rounds=5, host=1.12, follows=0.9) for _ in range(1000)]

    with_it = [found for pair in pairs if (found := adjusted(*pair)) is not None]
    without = [found for pair in pairs if (found := interval(*([one.time for one in side] for side in pair)))]

    assert sum(found.low > 1 for found in without) > 600
    assert sum(found.low > 1 for found in with_it) < 50  # 25 are expected of an interval at 95 %
    assert sum(found.low <= 1 <= found.high for found in with_it) > 920


def test_a_step_that_does_not_follow_the_host_is_adjusted_by_little() -> None:
    draw = random.Random(4)
    found = [adjusted(*simulated(draw, rounds=5, host=1.10, follows=0.0, slower=1.2)) for _ in range(200)]

    assert sum(one is not None and one.low <= 1.2 <= one.high for one in found) > 180
    assert sum(one is not None and one.low > 1.05 for one in found) > 150


def test_noise_that_is_the_machines_does_not_widen_the_interval() -> None:
    """A program 12 % slower, on a machine whose processes are 5 % apart, is found in nearly all of 200 pairs."""
    draw = random.Random(5)
    pairs = [simulated(draw, rounds=5, host=1.0, follows=1.0, slower=1.12) for _ in range(200)]

    with_it = [found for pair in pairs if (found := adjusted(*pair))]
    without = [found for pair in pairs if (found := interval(*([one.time for one in side] for side in pair)))]

    assert sum(found.verdict(0.05) == MetricVerdict.WORSE for found in with_it) > 180
    assert sum(found.verdict(0.05) == MetricVerdict.WORSE for found in without) < 110
    widths = [median(math.log(found.high / found.low) for found in each) for each in (with_it, without)]
    assert widths[0] < 0.5 * widths[1]


def test_a_loop_timed_with_an_error_does_not_hide_the_machines_part() -> None:
    """Of 500 pairs in which only the host became 12 % slower, a third of what the loop moves by is its own error."""
    draw = random.Random(8)
    pairs = [simulated(draw, rounds=5, host=1.12, follows=1.0, moves=0.03, error=0.02) for _ in range(500)]
    exact = [[[replace(one, error=0.0) for one in side] for side in pair] for pair in pairs]

    found, without = ([_judged_by(*pair) for pair in each] for each in (pairs, exact))

    assert sum(one.low <= 1 <= one.high for one in found) > 0.93 * len(pairs)
    assert sum(one.low <= 1 <= one.high for one in without) < 0.86 * len(pairs)
    assert sum(one.verdict(0.05) == MetricVerdict.WORSE for one in found) < 0.01 * len(pairs)


def _judged_by(base: list[Round], head: list[Round]) -> Interval:
    """As kgprof.compare.metrics does: where the loop tells no slope the interval holds both readings of its drift."""
    measured = interval([one.time for one in base], [one.time for one in head])
    drift = interval([one.machine for one in base], [one.machine for one in head])
    assert drift is not None
    assert measured is not None
    return adjusted(base, head) or widened(measured, [drift_of("host", drift)])


def test_a_loop_that_moves_by_its_error_alone_tells_no_slope() -> None:
    moved = [math.exp(x) for x in (-0.02, 0.0, 0.02)]  # sum of squares 0.0008 a side

    assert adjusted(paired(moved, moved, 0.0173), paired(moved, moved, 0.0173)) is None  # error^2 * 2/3 * 3: 0.0006
    assert adjusted(paired(moved, moved, 0.0141), paired(moved, moved, 0.0141)) is not None  # and 0.0004


@pytest.mark.parametrize(("host", "told"), [(1.4, True), (1.6, False), (1 / 1.6, False)])
def test_a_loop_that_is_another_altogether_tells_no_machine(host: float, told: bool) -> None:
    """A dispatch mode that the program left on slows the loop as it does the step."""
    assert (adjusted(*_following([1.0, 1.1, 1.05], host)) is not None) is told


def _following(loop: list[float], host: float) -> tuple[list[Round], list[Round]]:
    head = [host * one for one in loop]
    return paired(loop, loop), paired(head, head)


def test_a_loop_that_hardly_moved_leaves_the_interval_no_wider_than_its_two_readings() -> None:
    """The host 2 % slower, its processes 0.2 % apart and the program 15 % slower: no doubt of that."""
    draw = random.Random(9)
    pairs = [simulated(draw, rounds=5, host=1.02, follows=0.0, slower=1.15, moves=0.002) for _ in range(200)]

    found = [one for pair in pairs if (one := adjusted(*pair)) is not None]

    assert len(found) == 200
    assert sum(one.verdict(0.05) == MetricVerdict.WORSE for one in found) > 180
    assert sum(one.low <= 1.15 <= one.high for one in found) > 185


def test_sides_of_other_rounds_and_other_noise_do_not_share_a_variance() -> None:
    """Ten quiet rounds and three loud ones: the ten say nothing of how sure the three are."""
    draw = random.Random(10)

    def side(rounds: int, noise: float) -> list[Round]:
        speeds = [math.exp(draw.gauss(0, 0.05)) for _ in range(rounds)]
        return paired([speed * math.exp(draw.gauss(0, noise)) for speed in speeds], speeds)

    found = [one for _ in range(500) if (one := adjusted(side(10, 0.01), side(3, 0.05))) is not None]

    assert sum(one.low <= 1 <= one.high for one in found) > 0.93 * len(found)


def test_rounds_do_not_settle_a_limit_between_the_slopes_two_readings() -> None:
    """A host 10 % slower with a loop of half its movement error: the slope seen is 0.5 and may be 1."""
    loop = [math.exp(x) for x in (-0.04, 0.0, 0.04)]
    times = [math.exp(x) for x in (-0.02, 0.0, 0.02)]
    base = paired(times, loop, 0.028)
    head = paired([1.13 * x for x in times], [1.1 * x for x in loop], 0.028)

    assert adjusted(base, head) is not None
    assert adjusted_to_settle(base, head, 0.05) is None
    assert adjusted_to_settle(base, head, 0.15) is not None


@pytest.mark.parametrize("slope", [-2.0, 3.0])
def test_a_slope_that_no_machine_can_have_is_kept_within_what_one_can(slope: float) -> None:
    loop = [0.0, 0.1, 0.2]
    base = paired([math.exp(slope * x) for x in loop], [math.exp(x) for x in loop])
    head = paired([math.exp(slope * x) for x in loop], [math.exp(x + 0.1) for x in loop])

    found = adjusted(base, head)

    assert found is not None
    assert found.machine == pytest.approx(1.0 if slope < 0 else math.exp(0.1))
    assert found.low < found.ratio < found.high


@given(base=TIMES, head=TIMES, draw=st.randoms(use_true_random=False))
def test_swapping_the_sides_inverts_an_adjusted_interval(
    base: list[float], head: list[float], draw: random.Random
) -> None:
    sides = [paired(times, [draw.uniform(1.0, 1.4) for _ in times]) for times in (base, head)]

    there, back = adjusted(*sides), adjusted(*reversed(sides))

    if there is None or back is None:  # the loop of each side took the same time in all rounds
        assert there is back
        return
    inverted = 1 / there.ratio, 1 / there.high, 1 / there.low
    assert (back.ratio, back.low, back.high) == pytest.approx(inverted, rel=1e-6)


@pytest.mark.parametrize(
    ("base", "head"),
    [
        (
            [Round(time=1.0, machine=2.0, error=0.0)] * 2,
            [Round(time=1.0, machine=2.0, error=0.0)] * 2,
        ),  # the loop tells nothing
        ([Round(time=1.0, machine=2.0, error=0.0)], paired([1.0, 2.0], [1.0, 2.0])),
        (paired([1.0, 2.0], [1.0, 0.0]), paired([1.0, 2.0], [1.0, 2.0])),
    ],
)
def test_without_a_slope_nothing_is_adjusted(base: list[Round], head: list[Round]) -> None:
    assert adjusted(base, head) is None
    assert adjusted_to_settle(base, head, 0.05) is None


def test_fewer_rounds_settle_an_interval_where_the_noise_is_the_machines() -> None:
    draw = random.Random(7)
    pairs = [simulated(draw, rounds=5, host=1.0, follows=1.0, slower=1.1) for _ in range(50)]

    with_it = [adjusted_to_settle(*pair, 0.05) or MOST_ROUNDS for pair in pairs]
    without = [rounds_to_settle(*([one.time for one in side] for side in pair), 0.05) or MOST_ROUNDS for pair in pairs]

    assert median(with_it) < 0.5 * median(without)
