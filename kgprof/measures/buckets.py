"""Sizes to pad to: the least padded work that a number of compilations can have, by dynamic
programming; and which way to treat varying sizes takes least time."""

from collections import Counter
from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from kgprof import model as m
from kgprof.judge import Level, Samples, Unknown, judge

MOST = 8  # torch's recompile limit: each bucket is a graph
WASTE = 0.10  # share of the computed rows that may be padding


def buckets(sizes: Sequence[int], most: int) -> tuple[int, ...]:
    """At most ``most`` of the sizes, ascending, with the least rows of padding over all of
    ``sizes``.

    The largest size is always one. With sorted distinct sizes s and their counts c, the least
    padding of the first j sizes in k buckets is least(j, k) = min over i < j of least(i, k - 1) +
    sum of c * (s[j] - s) over i..j.
    """
    counts = sorted(Counter(sizes).items())
    # of the first j sizes, with their buckets; without one, only of no sizes
    least: list[tuple[float, tuple[int, ...]]] = [(0, ()), *[(inf, ())] * len(counts)]
    for _ in range(min(most, len(counts))):
        wider = least[:1]
        for j in range(1, len(counts) + 1):
            top = counts[j - 1][0]
            split = (
                (
                    least[i][0] + sum(count * (top - size) for size, count in counts[i:j]),
                    (*least[i][1], top),
                )
                for i in range(j)
            )
            wider.append(min(split, key=lambda made: (made[0], len(made[1]))))
        least = wider
    return least[-1][1]


def padded_share(sizes: Sequence[int], chosen: Sequence[int]) -> float:
    """Share of the computed rows that are padding, each size padded to the least bucket that holds
    it."""
    return 1 - sum(sizes) / sum(
        min(bucket for bucket in chosen if bucket >= size) for size in sizes
    )


def recommended(sizes: Sequence[int]) -> tuple[int, ...]:
    """The fewest buckets with at most WASTE of padding; MOST of them where that is not enough."""
    for most in range(1, MOST):
        if padded_share(sizes, chosen := buckets(sizes, most)) <= WASTE:
            return chosen
    return buckets(sizes, MOST)


# ---------------------------------------------------------------- which policy

Policies = Sequence[tuple[m.SizePolicy, m.PolicyResult | m.Skipped]]


class Choice(NamedTuple):
    best: m.SizePolicy
    fastest: m.SizePolicy
    unknown: list[m.SizePolicy]  # those that nobody can tell from the fastest


def best_policy(policies: Policies) -> Choice | None:
    """The fastest over the sequence in steady state, or of those that are level with it the one
    that compiles in the fewest seconds."""
    timed: dict[m.SizePolicy, Samples] = {}
    seconds: dict[m.SizePolicy, float] = {}
    for policy, found in policies:
        whole = _whole(found)
        if isinstance(found, m.PolicyResult) and isinstance(whole, Samples):
            timed[policy] = whole
            seconds[policy] = found.compile_s
    if not timed:
        return None
    fastest = min(timed, key=lambda policy: timed[policy].median)
    level = [fastest]
    unknown = []
    for policy, side in timed.items():
        if policy is fastest:
            continue
        answer = judge(timed[fastest], side)
        if isinstance(answer, Level):
            level.append(policy)
        elif isinstance(answer, Unknown):
            unknown.append(policy)
    return Choice(min(level, key=lambda policy: seconds[policy]), fastest, unknown)


@m.skippable
def _whole(found: m.PolicyResult | m.Skipped) -> Samples | m.Skipped:
    """The whole sequence, of the sums of its calls, in one process."""
    result = m.known(found)
    costs = [(cost.calls, m.known(cost.steady)) for cost in result.sizes]
    if result.differs or not costs:
        return m.Skipped("its results differ, or it has no call")
    return Samples(
        median=sum(calls * time.median for calls, time in costs),
        low=sum(calls * time.p10 for calls, time in costs),
        high=sum(calls * time.p90 for calls, time in costs),
        count=min(time.samples for _, time in costs),
    )
