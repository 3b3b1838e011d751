"""The global queue: every candidate is handed out once, in order, and nothing is ever clamped to a real row."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kgprof.workloads.linkpred.queue import hand_out, load, result_row, with_trash_row


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
