"""Waits in collectives: what is made from arrivals is found again, whatever the ranks' clocks
say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgprof.measures.collectives import OF_SOME_RANKS, Call, Matched, matched
from kgprof.model import RankBalance, Skipped
from tests.analysis.events import event, step
from tests.record.files.test_kineto_files import profile_in, run, saved

US = st.integers(0, 10_000).map(lambda us: us / 8)  # sums of them are exact


@given(
    arrivals=st.integers(2, 5).flatmap(
        lambda ranks: st.lists(  # steps, of collectives, of ranks
            st.lists(st.lists(US, min_size=ranks, max_size=ranks), min_size=1, max_size=4),
            min_size=1,
            max_size=6,
        )
    ),
    moving_us=st.integers(1, 5_000),
)
def test_each_rank_waits_from_its_arrival_to_the_last_ones(
    arrivals: list[list[list[float]]], moving_us: float
) -> None:
    ranks = len(arrivals[0][0])
    steps = [
        {
            number: tuple(
                Call(f"all_reduce {place}", max(each) - each[rank] + moving_us)
                for place, each in enumerate(one)
            )
            for number, one in enumerate(arrivals)
        }
        for rank in range(ranks)
    ]

    found = matched(steps, range(ranks))

    assert isinstance(found, Matched)
    waits = [
        [sum(max(each) - each[rank] for each in one) for one in arrivals] for rank in range(ranks)
    ]
    (group,) = found.groups
    assert np.array_equal(group.waits_us, waits)
    for row in found.rows:
        of_call = np.array(
            [
                max(one[row.place - 1]) - np.array(one[row.place - 1])
                for one in arrivals
                if len(one) >= row.place
            ]
        )
        assert row.steps == len(of_call)
        assert row.apart_us == np.median(of_call.max(axis=1))
        assert row.wait_us == tuple(np.median(of_call, axis=0))
        assert row.last_in == np.bincount(of_call.argmin(axis=1), minlength=ranks)[row.last_rank]


def test_only_steps_in_which_all_ranks_issue_the_same_are_matched() -> None:
    same, other = (Call("all_reduce", 5.0),), (Call("all_gather", 5.0),)

    found = matched(
        [{1: same, 2: same, 3: same}, {2: (Call("all_reduce", 9.0),), 3: other, 4: same}], [0, 4]
    )

    assert isinstance(found, Matched)
    (group,) = found.groups
    assert group.waits_us.tolist() == [[0.0], [4.0]]
    assert (found.rows[0].last_rank, found.rows[0].steps) == (0, 1)


@pytest.mark.parametrize(
    ("ranks", "reason"),
    [
        ([{}, {}], "no collective in which every rank waits for all others"),
        ([{1: (Call("all_reduce", 1.0),)}, {2: (Call("all_reduce", 1.0),)}], "in no traced step"),
        ([{1: (Call("all_reduce", 1.0, "[0, 1]"),)}, {1: ()}], "in no traced step"),
        ([{1: (Call("all_reduce", 1.0),)}, Skipped(reason="no trace of it")], "no trace of it"),
    ],
)
def test_what_cannot_be_matched_says_why(
    ranks: list[dict[int, tuple[Call, ...]] | Skipped], reason: str
) -> None:
    found = matched(ranks, [0, 1])
    assert isinstance(found, Skipped)
    assert reason in found.reason


def test_ranks_wait_for_those_of_their_own_group_only() -> None:
    """Four ranks in pairs, and one all-reduce of all four that is issued between those of the
    pairs."""

    def of(pair: str, *took_us: float) -> dict[int, tuple[Call, ...]]:
        first, everyone, second = took_us
        return {
            1: (
                Call("all_gather", first, pair),
                Call("all_reduce", everyone, "[0, 1, 2, 3]"),
                Call("all_gather", second, pair),
            )
        }

    found = matched(
        [
            of("[0, 1]", 5.0, 1.0, 2.0),
            of("[0, 1]", 9.0, 1.0, 2.0),
            of("[2, 3]", 1.0, 4.0, 2.0),
            of("[2, 3]", 1.0, 1.0, 8.0),
        ],
        range(4),
    )

    assert isinstance(found, Matched)
    assert {group.members: group.waits_us.tolist() for group in found.groups} == {
        (0, 1): [[0.0], [4.0]],
        (0, 1, 2, 3): [[0.0], [0.0], [3.0], [0.0]],
        (2, 3): [[0.0], [6.0]],
    }
    assert [(row.name, row.place, row.last_rank, row.wait_us) for row in found.rows] == [
        ("all_gather", 2, 2, (None, None, 0.0, 6.0)),
        ("all_gather", 1, 0, (0.0, 4.0, None, None)),
        ("all_reduce", 1, 0, (0.0, 0.0, 3.0, 0.0)),
        ("all_gather", 1, 2, (None, None, 0.0, 0.0)),
        ("all_gather", 2, 0, (0.0, 0.0, None, None)),
    ]


def balance_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> RankBalance:
    run(capsys, tmp_path, "-o", tmp_path / "out")
    balance = profile_in(tmp_path / "out").rank_balance
    assert balance is not None
    return balance


def test_a_broadcast_is_no_wait_and_a_group_of_some_ranks_is_not_guessed_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank in range(2):
        spans = [
            event("user_annotation", "gloo:broadcast", 10.0, 10.0 + 900 * rank, thread=2),
            event("user_annotation", "gloo:all_reduce", 910.0, 10.0 + 50 * rank, thread=2),
        ]
        events = [step(1, 0.0, 1000.0), event("cpu_op", "aten::mm", 20.0, 500.0), *spans]
        saved(tmp_path / f"t{rank}.json", events, rank=rank)
    found = balance_of(tmp_path, capsys)
    assert not isinstance(found.collectives, Skipped)
    (call,) = found.collectives
    assert (call.name, call.last_rank, call.wait_us) == ("gloo:all_reduce", 0, (0.0, 50.0))

    for rank in range(2):
        job = {"rank": rank, "world_size": 4, "pg_config": [{"pg_size": 4}, {"pg_size": 2}]}
        path = saved(tmp_path / f"t{rank}.json", events)
        path.write_text(
            path.read_text().replace(
                "{", '{"distributedInfo": ' + str(job).replace("'", '"') + ", ", 1
            )
        )
    assert balance_of(tmp_path, capsys).collectives == Skipped(reason=OF_SOME_RANKS)
