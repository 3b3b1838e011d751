"""Which collective the ranks of a job wait in, and which of them left it out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kgprof import model as m
from kgprof.analysis.hangs import hang

TIMED_OUT = m.Exit(outcome=m.Outcome.TIMED_OUT)
OWN = SimpleNamespace(project=SimpleNamespace(holds=lambda file: file.startswith("/home")))


def call(line: int, *size: int, operation: str = "all_reduce") -> m.CollectiveCall:
    frames = (
        m.SourceLine(file="/lib/wrapper.py", line=3),
        m.SourceLine(file="/home/train.py", line=line),
    )
    return m.CollectiveCall(operation=operation, sizes=(size,), frames=frames)


def rank(
    number: int,
    *calls: m.CollectiveCall,
    ended: m.Exit = TIMED_OUT,
    completed: int = 0,
    waits_s: float = 20.0,
    group: str = "0",
) -> Any:
    order = m.CollectiveOrder(
        rank=number,
        calls=calls,
        begun=tuple((group, place + 1, place) for place in range(len(calls))),
        completed={group: completed},
        waits_s={group: waits_s},
    )
    record = SimpleNamespace(collectives=order, exit=ended)
    return SimpleNamespace(record=record, source=OWN)


def told(*runs: Any) -> str:
    evidence: Any = SimpleNamespace(runs=runs)
    return hang(evidence)


A, B, C, D = call(10, 8, 4), call(11, 4), call(20), call(12, 2)


def test_the_rank_whose_calls_come_one_place_early_left_one_out() -> None:
    assert told(rank(0, A, B, C, A, B, D), rank(1, A, B, A, B, D)) == (
        "rank 1 did not call all_reduce of one number (train.py:20), which rank 0 called as "
        "collective 3; rank 1 called all_reduce of [8, 4] (train.py:10) instead"
    )


def test_calls_that_differ_for_another_reason_accuse_nobody() -> None:
    assert told(rank(0, A, B, D), rank(1, A, C, C)) == (
        "the ranks call different collectives: as collective 2 rank 0 called all_reduce of "
        "[4] (train.py:11), and rank 1 all_reduce of one number (train.py:20)"
    )


def test_ranks_that_raised_are_not_said_to_wait() -> None:
    at = m.Location(file="/home/train.py", line=11)
    raised = m.Exit(outcome=m.Outcome.RAISED, failure=m.Failure(error="sizes", location=at))

    found = told(rank(0, A, B, ended=raised), rank(1, A, C, ended=raised))

    assert found.startswith("the ranks call different collectives")
    assert "wait" not in found


def test_inputs_of_a_gather_may_differ() -> None:
    mine, theirs = (call(10, size, operation="all_gather") for size in (4, 5))

    assert told(rank(0, mine), rank(1, theirs)) == ""


def test_a_rank_that_began_none_of_a_smaller_group_is_not_accused() -> None:
    """It need not be in it; in that of all ranks it is."""
    waits = rank(0, A, group="3")

    assert told(waits, rank(1, group="3")) == ""
    assert told(rank(0, A), rank(1)).endswith("collective 1, which rank 1 never called")


def test_a_rank_that_never_comes_is_named() -> None:
    assert told(rank(0, A, B, C, completed=2), rank(1, A, B, completed=2)) == (
        "rank 0 waits in all_reduce of one number (train.py:20), collective 3, which rank 1 never "
        "called"
    )


@pytest.mark.parametrize("outcome", [m.Outcome.RAISED, m.Outcome.EXITED, m.Outcome.KILLED])
def test_a_rank_that_ended_by_itself_is_no_hang(outcome: m.Outcome) -> None:
    ended = rank(1, A, B, ended=m.Exit(outcome=outcome), completed=2)

    assert told(rank(0, A, B, C, completed=2), ended) == ""


def test_a_rank_that_raised_elsewhere_does_not_wait() -> None:
    at = m.Location(file="/home/train.py", line=40)
    failure = m.Failure(error="ValueError", location=at)
    raised = rank(0, A, B, C, ended=m.Exit(outcome=m.Outcome.RAISED, failure=failure), completed=2)

    assert told(raised, rank(1, A, B, completed=2)) == ""


def test_one_rank_alone_says_where_it_waits() -> None:
    assert told(rank(0, A, B, completed=1)) == (
        "rank 0 waits in all_reduce of [4] (train.py:11), collective 2; no other rank left its "
        "collectives"
    )


def test_ranks_that_did_the_same_do_not_hang() -> None:
    assert told(rank(0, A, B, completed=2), rank(1, A, B, completed=2)) == ""


def test_ranks_that_were_stopped_on_their_way_do_not_hang() -> None:
    """At any moment one rank is a collective ahead: a time limit alone is no hang."""
    ahead = rank(0, A, B, C, completed=2, waits_s=0.4)

    assert told(ahead, rank(1, A, B, completed=2)) == ""
    assert told(ahead) == ""
