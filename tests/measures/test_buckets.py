"""Buckets have the least padding of all choices, by trying all of them."""

from __future__ import annotations

import random
from itertools import chain, combinations

import pytest

from kgprof.measures.buckets import MOST, buckets, padded_share, recommended


@pytest.mark.parametrize("most", [1, 2, 3, 4])
def test_no_other_choice_has_less_padding(most: int) -> None:
    chance = random.Random(most)
    for _ in range(50):
        sizes = [chance.randint(1, 30) for _ in range(chance.randint(1, 9))]
        known = sorted(set(sizes))
        choices = chain(*(combinations(known, count) for count in range(1, most + 1)))

        chosen = buckets(sizes, most)

        assert len(chosen) <= most
        least = min(padded_share(sizes, each) for each in choices if each[-1] == known[-1])
        assert padded_share(sizes, chosen) == pytest.approx(least)


def test_the_fewest_buckets_with_a_tenth_of_padding_are_recommended() -> None:
    assert recommended([8, 16, 24, 32]) == (8, 16, 32)
    assert recommended([32] * 99 + [31]) == (32,)
    assert len(recommended(range(1, 200))) == MOST
