"""Interval sums against slow ones that count every nanosecond."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kgprof.reading import timeline
from kgprof.reading.timeline import Window

Interval = tuple[int, int]

intervals = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 25)).map(
        lambda pair: (pair[0], pair[0] + pair[1])
    ),
    max_size=14,
)


def owner(moment: int, spans: list[Interval]) -> int | None:
    """The span that a nanosecond belongs to: the last to start of those that cover it, the shorter,
    then the later."""
    covering = [i for i, (start, end) in enumerate(spans) if start <= moment < end]
    return max(covering, key=lambda i: (spans[i][0], -spans[i][1], i), default=None)


@given(intervals)
def test_union_counts_each_covered_nanosecond_once(spans: list[Interval]) -> None:
    covered = {moment for start, end in spans for moment in range(start, end)}

    assert timeline.union_ns(spans) == len(covered)


@given(intervals)
def test_self_times_give_each_nanosecond_to_the_innermost(spans: list[Interval]) -> None:
    owners = [owner(moment, spans) for moment in range(100)]

    found = timeline.self_times_ns(spans).tolist()

    assert found == [owners.count(i) for i in range(len(spans))]
    assert sum(found) == timeline.union_ns(spans)


def test_nested_calls_keep_what_their_children_do_not_use() -> None:
    # given: linear [0, 100) calls t [10, 20) and addmm [30, 90), which calls expand [40, 45)
    spans = [(0, 100), (10, 20), (30, 90), (40, 45)]

    assert timeline.self_times_ns(spans).tolist() == [30, 10, 55, 5]


@given(intervals, st.integers(0, 80), st.integers(0, 30))
def test_a_window_cuts_at_its_edges(spans: list[Interval], start: int, length: int) -> None:
    window = Window(start_ns=start, end_ns=start + length)

    for span, clipped in zip(spans, window.clip(spans).tolist(), strict=True):
        assert set(range(*clipped)) == set(range(*span)) & set(
            range(window.start_ns, window.end_ns)
        )


def test_a_window_widens_around_what_reaches_out_of_it() -> None:
    window = Window(start_ns=10, end_ns=20)

    assert window.around([(12, 25), (5, 7)]) == Window(start_ns=5, end_ns=25)
    assert window.around([]) == window


def enclosed(children: list[list[Interval]]) -> list[Interval]:
    """The children side by side, and a span around them."""
    placed: list[Interval] = []
    clock = 0
    for child in children:
        placed += [(start + clock, end + clock) for start, end in child]
        clock += max(end for _, end in child)
    return [(0, clock), *placed]


# Nested by construction: a span that begins inside another one ends inside it.
trees = st.recursive(
    st.tuples(st.integers(0, 9), st.integers(0, 9)).map(
        lambda pair: [(pair[0], pair[0] + pair[1])]
    ),
    lambda children: st.lists(children, max_size=3).map(enclosed),
    max_leaves=12,
)


@given(trees)
def test_nested_intervals_have_the_owners_that_one_after_the_other_finds(
    spans: list[Interval],
) -> None:
    ordered = timeline.as_intervals(
        [s for s in sorted(spans, key=lambda s: (s[0], -s[1])) if s[0] < s[1]]
    )
    parents = timeline._parents(ordered)
    slow = timeline._of_overlapping(ordered)

    assert parents is not None
    quick = timeline._of_nested(ordered, *parents)
    moments = timeline.as_intervals([(m, m) for m in range(-1, 120)])[:, 0]
    assert quick.at(moments).tolist() == slow.at(moments).tolist()


@given(intervals)
def test_what_is_taken_for_nested_has_the_same_owners_either_way(spans: list[Interval]) -> None:
    ordered = timeline.as_intervals(
        [s for s in sorted(spans, key=lambda s: (s[0], -s[1])) if s[0] < s[1]]
    )
    parents = timeline._parents(ordered)
    moments = timeline.as_intervals([(m, m) for m in range(-1, 100)])[:, 0]

    quick = None if parents is None else timeline._of_nested(ordered, *parents)

    slow = timeline._of_overlapping(ordered).at(moments).tolist()
    assert quick is None or quick.at(moments).tolist() == slow
