"""The global queue: every candidate is handed out once, in order, and nothing is ever clamped to a
real row."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kgprof.workloads.linkpred.queue import (
    hand_out,
    hand_out_own,
    load,
    own_shares,
    result_row,
    with_trash_row,
)


def test_asking_slots_get_the_next_candidates_in_slot_order() -> None:
    asking = torch.tensor([False, True, True, False, True])

    handout = hand_out(torch.tensor(3), asking, 10)

    assert (handout.candidate.tolist(), int(handout.head)) == ([10, 3, 4, 10, 5], 6)


def test_a_queue_that_runs_out_gives_no_candidate_to_the_rest() -> None:
    handout = hand_out(torch.tensor(8), torch.ones(4, dtype=torch.bool), 10)

    assert (handout.candidate.tolist(), int(handout.head)) == ([8, 9, 10, 10], 10)


@pytest.mark.parametrize("head", [0, 2])
def test_an_empty_queue_gives_no_candidate(head: int) -> None:
    handout = hand_out(torch.tensor(head), torch.ones(3, dtype=torch.bool), head)

    assert (handout.candidate.tolist(), int(handout.head)) == ([head] * 3, head)


@given(
    size=st.integers(0, 40),
    rounds=st.lists(st.lists(st.booleans(), min_size=5, max_size=5), max_size=60),
)
def test_whoever_asks_and_when_each_candidate_is_handed_out_once_and_in_order(
    size: int, rounds: list[list[bool]]
) -> None:
    head, given_out, asked = torch.tensor(0), [], 0
    for asking in rounds:
        handout = hand_out(head, torch.tensor(asking), size)
        head = handout.head
        asked += sum(asking)
        given_out += [candidate for candidate in handout.candidate.tolist() if candidate != size]

    assert given_out == list(range(min(asked, size)))


def test_an_unfinished_slot_writes_to_the_trash_row() -> None:
    rows = result_row(torch.tensor([4, 0, 6, 2]), torch.tensor([True, False, False, True]), 6)

    assert rows.tolist() == [4, 6, 6, 2]


def test_a_loaded_state_is_the_goal_and_padding_and_no_candidate_is_padding_alone() -> None:
    goals = with_trash_row(torch.tensor([[3, 1, 2], [4, 2, 2]], dtype=torch.int32))

    states = load(goals, torch.tensor([1, 2]), 3)

    assert states.dtype == torch.int32
    assert states.tolist() == [[[4, 2, 2], [0, 0, 0], [0, 0, 0]], [[0, 0, 0]] * 3]


def test_without_candidates_there_is_still_the_trash_row() -> None:
    goals = with_trash_row(torch.zeros((0, 3), dtype=torch.int32))

    assert load(goals, torch.tensor([0]), 2).tolist() == [[[0, 0, 0], [0, 0, 0]]]


@given(queries=st.lists(st.integers(0, 9), max_size=40), slots=st.integers(1, 12))
def test_own_shares_hold_every_candidate_once(queries: list[int], slots: int) -> None:
    first, following = own_shares(np.array(queries, dtype=np.int64), slots)
    size = len(queries)
    handed: list[list[int]] = [[] for _ in range(slots)]
    head = first
    for _ in range(size + 1):
        handout = hand_out_own(head, torch.ones(slots, dtype=torch.bool), following)
        for slot, candidate in enumerate(handout.candidate.tolist()):
            handed[slot] += [candidate] if candidate < size else []
        head = handout.head

    assert sorted(itertools.chain.from_iterable(handed)) == [*range(size)]
    for slot, mine in enumerate(handed):
        assert [(queries[candidate], candidate) for candidate in mine] == sorted(
            (query, candidate) for candidate, query in enumerate(queries) if query % slots == slot
        )


def test_a_slot_that_does_not_ask_keeps_its_place() -> None:
    first, following = own_shares(np.array([0, 0, 1, 1]), 2)
    handout = hand_out_own(first, torch.tensor([True, False]), following)

    assert (handout.candidate.tolist(), handout.head.tolist()) == ([0, 4], [1, 2])
