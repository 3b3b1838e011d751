from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgprof.compare.machine import drift_words
from kgprof.compare.metrics import VERDICTS
from kgprof.judge import (
    ALPHA,
    Interval,
    InTurn,
    Pair,
    Samples,
    could_have_seen,
    decided,
    looks,
    paired,
    ratio_in_turn,
    rounds_to_settle,
    share,
    t_quantile,
    welch,
)
from kgprof.model import MachineDrift, MetricVerdict


def verdict(found: Interval, budget: float) -> MetricVerdict:
    return VERDICTS[decided(found, budget).verdict]


def rounds(*times: float) -> Samples:
    return Samples(median=1.0, low=1.0, high=1.0, count=1, rounds=dict(enumerate(times, start=1)))


def test_what_pairs_could_have_seen_is_found_in_four_of_five_recordings() -> None:
    """Of 24 pairs of an unchanged program the share, put on 24 others at their last look."""
    chance = random.Random(5)

    def recorded(more: float) -> Interval:
        ratios = [(1 + more) * math.exp(chance.gauss(0, 0.015)) for _ in range(24)]
        interval = paired([Pair(1.0, ratio, ratio) for ratio in ratios], InTurn(24, 24))
        assert interval is not None
        return interval

    unchanged = [recorded(0.0) for _ in range(400)]
    seen = statistics.median(could_have_seen(one.low, one.high) for one in unchanged)
    found = sum(recorded(seen).low > 1 for _ in range(1000)) / 1000

    assert 0.74 <= found <= 0.86
    assert could_have_seen(1.0, 1.0) == 0


TIMES = st.lists(st.floats(min_value=1.0, max_value=1e6), min_size=2, max_size=10)


def test_quantiles_of_t_are_those_of_the_closed_forms() -> None:
    """One degree of freedom is Cauchy's, two has a closed form, many are the normal
    distribution's."""
    p = 0.975
    assert t_quantile(1) == pytest.approx(math.tan(math.pi * (p - 0.5)), abs=5e-4)
    assert t_quantile(2) == pytest.approx(
        (2 * p - 1) * math.sqrt(2 / (1 - (2 * p - 1) ** 2)), abs=5e-4
    )
    assert t_quantile(10_000) == pytest.approx(1.96, abs=1e-3)
    # the tables' one for 0.001 above
    assert t_quantile(2, 0.002) == pytest.approx(22.327, abs=1e-3)


@pytest.mark.parametrize("degrees", [3, 4, 5, 8, 12, 20, 30, 40, 60, 100])
def test_quantiles_of_t_leave_a_fortieth_above(degrees: int) -> None:
    norm = math.gamma((degrees + 1) / 2) / (math.sqrt(degrees * math.pi) * math.gamma(degrees / 2))
    top, parts = t_quantile(degrees), 4000
    width = top / parts
    heights = (
        norm * (1 + (i * width) ** 2 / degrees) ** (-(degrees + 1) / 2) for i in range(parts + 1)
    )
    simpson = (
        sum(h * (1 if i in (0, parts) else 4 if i % 2 else 2) for i, h in enumerate(heights))
        * width
        / 3
    )

    assert 0.5 + simpson == pytest.approx(0.975, abs=5e-5)


def test_an_interval_worked_by_hand() -> None:
    """Logarithms 0, 0.1, 0.2 and 1, 1.1, 1.2: means 0.1 and 1.1, variances 0.01, four degrees of
    freedom."""
    found = welch([math.exp(x) for x in (0.0, 0.1, 0.2)], [math.exp(x) for x in (1.0, 1.1, 1.2)])

    assert found is not None
    half = 2.77645 * math.sqrt(0.01 / 3 + 0.01 / 3)
    assert (math.log(found.ratio), math.log(found.low), math.log(found.high)) == pytest.approx(
        (1, 1 - half, 1 + half)
    )


@pytest.mark.parametrize(
    "sides", [([1.0], [1.0, 2.0]), ([1.0, 2.0], [1.0]), ([], [1.0, 2.0]), ([0.0, 1.0], [1.0, 2.0])]
)
def test_without_two_rounds_on_both_sides_there_is_no_interval(
    sides: tuple[list[float], list[float]],
) -> None:
    assert welch(*sides) is None
    assert rounds_to_settle(rounds(*sides[0]), rounds(*sides[1]), 0.05) is None


@given(base=TIMES, head=TIMES)
def test_swapping_the_sides_inverts_the_interval(base: list[float], head: list[float]) -> None:
    there, back = welch(base, head), welch(head, base)

    assert there is not None
    assert back is not None
    assert (back.ratio, back.low, back.high) == pytest.approx(
        (1 / there.ratio, 1 / there.high, 1 / there.low)
    )


@given(base=TIMES, head=TIMES, budget=st.floats(min_value=0.0, max_value=1.0))
def test_swapping_the_sides_makes_worse_better(
    base: list[float], head: list[float], budget: float
) -> None:
    there, back = welch(base, head), welch(head, base)

    assert there is not None
    assert back is not None
    if there.low > (1 + budget) * (1 + 1e-9):
        assert verdict(back, budget) == MetricVerdict.BETTER
    if there.high < 1 / (1 + budget) * (1 - 1e-9):
        assert verdict(back, budget) == MetricVerdict.WORSE


def test_the_interval_holds_the_true_ratio_nineteen_times_of_twenty() -> None:
    """Rounds of unequal noise, five and eight of them: Welch's case."""
    chance = random.Random(7)
    inside = 0
    for _ in range(2000):
        base = [math.exp(chance.gauss(0.0, 0.02)) for _ in range(5)]
        head = [1.1 * math.exp(chance.gauss(0.0, 0.06)) for _ in range(8)]
        found = welch(base, head)
        assert found is not None
        inside += found.low <= 1.1 <= found.high

    # degrees of freedom are rounded down, so it is no narrower than 95 %
    assert 0.94 <= inside / 2000 <= 0.97


@pytest.mark.parametrize(
    ("low", "high", "expected"),
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
def test_an_interval_against_a_budget_of_five_percent(
    low: float, high: float, expected: MetricVerdict
) -> None:
    found = Interval(first=1.0, second=1.0, ratio=math.sqrt(low * high), low=low, high=high)

    assert verdict(found, 0.05) == expected


@settings(max_examples=50)
@given(
    ratio=st.floats(min_value=0.8, max_value=1.3), noise=st.floats(min_value=0.001, max_value=0.05)
)
def test_so_many_rounds_as_are_named_would_settle_it(ratio: float, noise: float) -> None:
    """Given rounds of the same mean and the same variance."""
    base = [math.exp(-noise), 1.0, math.exp(noise)]
    head = [ratio * x for x in base]
    settle = rounds_to_settle(rounds(*base), rounds(*head), 0.05)
    if settle is None or settle < 3:
        return
    more = _of_the_same_variance(base, settle), _of_the_same_variance(head, settle)
    fewer = _of_the_same_variance(base, settle - 1), _of_the_same_variance(head, settle - 1)

    found, before = welch(*more), welch(*fewer)
    assert found is not None
    assert before is not None
    assert verdict(found, 0.05) != MetricVerdict.INCONCLUSIVE
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


# ---------------------------------------------------------------- was the machine itself slower


def drifted(ratio: float) -> MachineDrift:
    return MachineDrift(
        loop="host", base=4.0, head=4.0 * ratio, ratio=ratio, low=ratio * 0.99, high=ratio * 1.01
    )


@pytest.mark.parametrize(
    ("ratio", "expected"), [(1.04, False), (1.06, True), (0.96, False), (0.94, True)]
)
def test_a_machine_moved_by_more_than_the_budget_either_way(ratio: float, expected: bool) -> None:
    assert bool(drift_words((drifted(ratio),), 0.05)) is expected


# ---------------------------------------------------------------- recorded in turn


def test_all_of_the_error_probability_is_spent_over_the_looks() -> None:
    assert looks(10) == (4, 6, 8, 10)
    assert (looks(2), looks(4), looks(5)) == ((2,), (4,), (4, 5))
    assert [InTurn(10, pairs).look for pairs in (0, 3, 4, 5, 9, 10)] == [0, 0, 4, 4, 8, 10]
    for most in (2, 4, 7, 10, 30):
        assert sum(share(look, most) for look in looks(most)) == pytest.approx(ALPHA)


def test_a_paired_interval_worked_by_hand() -> None:
    """Differences 0.1, 0.3, 0.1, 0.3 at the only look: mean 0.2, variance 0.04 / 3, three degrees
    of freedom."""
    base = [math.exp(x) for x in (0.0, 5.0, -2.0, 1.0)]
    head = [x * math.exp(more) for x, more in zip(base, (0.1, 0.3, 0.1, 0.3), strict=True)]

    found = paired(quotients(base, head), InTurn(4, 4))

    assert found is not None
    half = 3.182 * math.sqrt(0.04 / 3 / 4)
    ends = math.log(found.ratio), math.log(found.low), math.log(found.high)
    assert ends == pytest.approx((0.2, 0.2 - half, 0.2 + half), abs=1e-4)
    assert found.second / found.first == pytest.approx(found.ratio)
    assert paired(quotients([1.0], [2.0]), InTurn(4, 4)) is None
    assert paired([Pair(1.0, 2.0, 2.0), Pair(0.0, 1.0, 1.0)], InTurn(4, 4)) is None


def test_where_pairs_took_turns_their_own_ratios_count_and_both_times_stay_in_the_middle() -> None:
    found = paired([Pair(100.0, 400.0, 1.21)] * 4, InTurn(4, 4))

    assert found is not None
    assert (found.ratio, found.low, found.high) == pytest.approx((1.21, 1.21, 1.21))
    assert (found.first, found.second) == pytest.approx((200 / 1.1, 200 * 1.1))


def test_a_core_that_is_now_fast_and_now_slow_is_so_for_both_pieces_of_work_side_by_side() -> None:
    """Head is 2 % slower; one had more slow pieces, so that the medians are 30 % apart."""
    fast, slow = 100.0, 130.0
    base = [fast, fast, slow, slow, fast, fast, slow]
    head = [1.02 * at for at in (fast, fast, slow, slow, slow, fast, slow)]

    assert statistics.median(head) / statistics.median(base) > 1.3
    assert ratio_in_turn(base, head) == pytest.approx(1.02)
    # one was longer there
    assert ratio_in_turn([100.0, 0.0, 100.0], [110.0, 5.0]) == pytest.approx(1.1)
    assert ratio_in_turn((), [1.0]) is None


def quotients(base: Sequence[float], head: Sequence[float]) -> list[Pair]:
    """Of pairs of which one process ran after the other."""
    return [Pair(below, above, above / below) for below, above in zip(base, head, strict=True)]


def student(chance: random.Random) -> float:
    """Of three degrees of freedom."""
    return chance.gauss(0, 1) / math.sqrt(sum(chance.gauss(0, 1) ** 2 for _ in range(3)) / 3)


def machine(kind: str, chance: random.Random, processes: int) -> list[float]:
    """The logarithm of what each of so many processes takes, one after the other."""
    own = [chance.gauss(0, 0.02) for _ in range(processes)]
    match kind:
        case "a trend":
            return [each + 0.01 * at for at, each in enumerate(own)]
        case "a step":
            when, far = chance.randrange(processes), chance.choice((-0.3, 0.3))
            return [each + far * (at >= when) for at, each in enumerate(own)]
        case "a random walk":
            walk = 0.0
            return [each + (walk := walk + chance.gauss(0, 0.02)) for each in own]
        case "a neighbour that comes and goes":
            there = False
            return [
                each + 0.5 * (there := there if chance.random() < 0.8 else not there)
                for each in own
            ]
        case "heavy tails":
            return [0.02 * student(chance) for _ in own]
        case "processes of two kinds":
            return [each + (0.34 if chance.random() < 0.3 else 0.0) for each in own]
        case "outliers":
            return [each + (1.1 if chance.random() < 0.1 else 0.0) for each in own]
    return own


STEADY = "nothing else"
MACHINES = (
    *(STEADY, "a trend", "a step", "a random walk", "a neighbour that comes and goes"),
    *("heavy tails", "processes of two kinds", "outliers"),
)


def recorded(
    kind: str, chance: random.Random, *, most: int, budget: float, slower: float = 1.0
) -> tuple[str, int, bool]:
    """A recording in turn: its verdict, after how many pairs, and whether each interval up to there
    held the truth."""
    took = machine(kind, chance, 2 * most)
    base, head, held = [], [], True
    for pair in range(most):
        first, second = took[2 * pair : 2 * pair + 2]
        below, above = (first, second) if pair % 2 == 0 else (second, first)
        base.append(math.exp(below))
        head.append(slower * math.exp(above))
        if (look := pair + 1) in looks(most):
            found = paired(quotients(base, head), InTurn(most, look))
            assert found is not None
            held = held and found.low <= slower <= found.high
            if (judged := verdict(found, budget)) is not MetricVerdict.INCONCLUSIVE:
                return judged, look, held
    return MetricVerdict.INCONCLUSIVE, most, held


@pytest.mark.parametrize("kind", MACHINES)
@pytest.mark.parametrize("most", [6, pytest.param(10, marks=pytest.mark.long), 20])
def test_false_alarms_stay_below_the_stated_rate_at_all_looks_together(
    kind: str, most: int
) -> None:
    """With no budget at all, where a look is most tempted: each verdict but "inconclusive" is a
    wrong one."""
    chance, times = random.Random(f"{kind} {most}"), 1000
    results = [recorded(kind, chance, most=most, budget=0.0) for _ in range(times)]

    # of an estimate of 5 % from so many recordings
    chance_s_own = 2.3 * math.sqrt(0.05 * 0.95 / times)
    assert (
        sum(verdict == MetricVerdict.WORSE for verdict, _, _ in results) / times
        <= 0.025 + chance_s_own / 1.4
    )
    assert sum(not held for _, _, held in results) / times <= 0.05 + chance_s_own


def test_a_slower_program_is_found_and_the_clearer_it_is_the_sooner() -> None:
    chance = random.Random(1)
    figures = {}
    for slower in (1.05, 1.10, 1.30):
        results = [
            recorded(STEADY, chance, most=10, budget=0.02, slower=slower) for _ in range(300)
        ]
        found = sum(verdict == MetricVerdict.WORSE for verdict, _, _ in results) / 300
        figures[slower] = (found, sum(pairs for _, pairs, _ in results) / 300)

    assert figures[1.10][0] >= 0.95
    assert figures[1.30][0] == 1.0
    assert figures[1.30][1] < figures[1.10][1] < figures[1.05][1]


def test_drift_that_both_sides_share_hides_no_regression() -> None:
    """One per cent from each process to the next: the sides recorded one after the other would lie
    10 % apart."""
    chance = random.Random(2)
    results = [recorded("a trend", chance, most=10, budget=0.02, slower=1.10) for _ in range(200)]

    assert sum(verdict == MetricVerdict.WORSE for verdict, _, _ in results) >= 180
