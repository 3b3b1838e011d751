"""Change points: planted steps and drifts, and how often an unchanged program is said to have
changed. All draws come from generators that begin alike, so the counts are always the same."""

from __future__ import annotations

import functools
import json
import math
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from kgprof.compare.change_points import FEWEST_VALUES, Change, changes

KEPT = Path(__file__).parents[2] / "benchmarks" / "results" / "in_turn.json"
AGAIN = "as it is, again"


def noisy(chance: random.Random, levels: Sequence[float]) -> list[float]:
    """Each level with 2 % of noise."""
    return [level * math.exp(chance.gauss(0, 0.02)) for level in levels]


@functools.cache
def unchanged() -> dict[str, list[float]]:
    """The times of the step of each program that was recorded against itself, process by
    process."""
    series = json.loads(KEPT.read_text("utf-8"))["series"]
    return {
        name: [
            pair["step"][0]
            for found in of["found"]
            if found["head"] == AGAIN
            for pair in found["pairs"]
        ]
        for name, of in series.items()
    }


def test_of_a_thousand_unchanged_histories_few_are_said_to_change() -> None:
    chance = random.Random(0)
    alarms = {
        name: sum(bool(changes(chance.choices(times, k=50))) for _ in range(250))
        for name, times in unchanged().items()
    }

    assert len(alarms) == 4
    assert sum(alarms.values()) <= 15, alarms


@pytest.mark.parametrize(("commits", "found"), [(4, 40), (6, 75), (8, 90), (12, 98)])
def test_a_step_of_five_percent_is_found_within_a_few_commits(commits: int, found: int) -> None:
    chance = random.Random(0)
    seen = 0
    for _ in range(100):
        last = changes(noisy(chance, [1.0] * 40 + [1.05] * commits))[-1:]
        seen += any(one.now > one.before for one in last)

    assert seen >= found


def test_the_place_and_the_size_of_a_step_are_right() -> None:
    chance = random.Random(0)
    near = 0
    covered = 0
    for _ in range(100):
        (one, *_) = changes(noisy(chance, [1.0] * 25 + [1.1] * 25))
        near += abs(one.first - 25) <= 1 and one.last == one.first
        covered += one.low <= 1.1 <= one.high

    assert near >= 97
    assert covered >= 85


def test_a_slow_drift_is_a_drift_and_not_one_step() -> None:
    chance = random.Random(0)
    found = [changes(noisy(chance, [1.002**commit for commit in range(50)])) for _ in range(100)]

    drifts = [one[0] for one in found if len(one) == 1 and is_drift(one[0])]
    one_step = [one for one in found if len(one) == 1 and not is_drift(one[0])]
    assert len(drifts) >= 88
    assert len(one_step) <= 1
    assert all(one.low > 1 for one in drifts)


def test_a_step_is_seldom_a_drift() -> None:
    chance = random.Random(0)
    found = [changes(noisy(chance, [1.0] * 25 + [1.05] * 25)) for _ in range(100)]

    assert sum(any(map(is_drift, one)) for one in found) <= 10


def test_a_slowdown_that_was_fixed_has_two_steps() -> None:
    chance = random.Random(0)
    found = [changes(noisy(chance, [1.0] * 40 + [1.05] * 10 + [1.0] * 40)) for _ in range(100)]

    assert sum([one.now > one.before for one in each] == [True, False] for each in found) >= 90


def test_one_slow_recording_is_no_change() -> None:
    chance = random.Random(0)
    times = noisy(chance, [1.0] * 40)
    times[20] = 3.0

    assert changes(times) == []


@pytest.mark.parametrize("times", [[], [1.0], [1.0] * 50, [1.0, 2.0] * 4, [1.0] * 5 + [2.0] * 4])
def test_of_too_few_or_of_equal_values_nothing_is_said(times: list[float]) -> None:
    assert changes(times) == []
    assert len(times) < FEWEST_VALUES or len({*times}) == 1


def test_the_same_values_give_the_same_changes() -> None:
    times = noisy(random.Random(4), [1.0] * 20 + [1.08] * 20)

    assert changes(times) == changes(times) != []


def is_drift(one: Change) -> bool:
    return one.last > one.first
