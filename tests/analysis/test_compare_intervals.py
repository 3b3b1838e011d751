from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgprof.analysis.compare_intervals import (
    BETTER,
    INCONCLUSIVE,
    SAME,
    WORSE,
    Interval,
    interval,
    rounds_to_settle,
    t_quantile,
)

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
        assert back.verdict(budget) == BETTER
    if there.high < 1 / (1 + budget) * (1 - 1e-9):
        assert back.verdict(budget) == WORSE


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
        (1.06, 1.2, WORSE),
        (1.04, 1.2, INCONCLUSIVE),
        (0.9, 1.2, INCONCLUSIVE),
        (1.01, 1.04, SAME),
        (0.97, 1.03, SAME),
        (0.96, 0.99, SAME),
        (0.5, 0.95, BETTER),
    ],
)
def test_an_interval_against_a_budget_of_five_percent(low: float, high: float, verdict: str) -> None:
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
    assert found.verdict(0.05) != INCONCLUSIVE
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
