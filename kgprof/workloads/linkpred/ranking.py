"""Filtered ranks of the queries among their corruptions, under four rules for ties.

With ``higher`` corruptions scored above the query and ``equal`` ones level with it, its place is
anything from ``higher + 1`` to ``higher + 1 + equal``:

- optimistic: the first of these places; pessimistic: the last; realistic: their mean, which can end
  in .5, so that
  hits@k counts a mean of at most k (PyKEEN's definitions);
- expected: every place equally likely, as if the ties were broken at random. Then 1/rank is on
  average
  (H(last) - H(first - 1)) / (equal + 1) with the harmonic numbers H, and hits@k is the share of
  places up to k.
"""

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from kgprof.reading.link_prediction import RankMetrics
from kgprof.workloads.linkpred.arrays import Floats, Ints
from kgprof.workloads.linkpred.sampler import NO_CANDIDATE, SIDES, Candidates

HITS_AT = (1, 3, 10)
BOTH_SIDES = "both"
SLOTS_AT_ONCE = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """``metrics``: for head, tail and both together, one entry for each rule of TIES. NaN scores
    ranked as -inf."""

    metrics: tuple[RankMetrics, ...]
    nan_scores: int


def rank(scores: Floats, candidates: Candidates) -> Ranking:
    """Metrics of ``scores``, float64 [N] in the order of ``candidates.triples``; higher is
    better."""
    if scores.shape != (len(candidates.triples),):
        raise ValueError(f"{scores.shape} scores for {len(candidates.triples)} candidates")
    missing = np.isnan(scores)
    first, last = places(np.where(missing, -np.inf, scores), candidates.slots)
    return Ranking(metrics=metrics_of(first, last), nan_scores=int(missing.sum()))


def metrics_of(first: Ints, last: Ints) -> tuple[RankMetrics, ...]:
    """Of the places, int64 [Q, 2], that ties leave to each query on each side."""
    sides = [*zip(SIDES, first.T, last.T, strict=True), (BOTH_SIDES, first.ravel(), last.ravel())]
    metrics = []
    for (side, low, high), ties in itertools.product(sides, TIES):
        queries = len(low)
        reciprocal_sum, (hits_1, hits_3, hits_10) = TIES[ties](low, high)
        ranked = RankMetrics(
            side=side,
            ties=ties,
            queries=queries,
            mrr=reciprocal_sum / queries,
            hits_at_1=hits_1 / queries,
            hits_at_3=hits_3 / queries,
            hits_at_10=hits_10 / queries,
        )
        metrics.append(ranked)
    return tuple(metrics)


def places(scores: Floats, slots: Ints) -> tuple[Ints, Ints]:
    """First and last place, int64 [Q, 2], that ties leave to each query on each side."""
    first = np.empty(slots.shape[:2], dtype=np.int64)
    last = np.empty_like(first)
    # With all entities as corruptions the slots of a query are many.
    queries = max(1, SLOTS_AT_ONCE // max(1, math.prod(slots.shape[1:])))
    for begin in range(0, len(slots), queries):
        some = slice(begin, begin + queries)
        corruptions = slots[some, :, 1:]
        valid = corruptions != NO_CANDIDATE
        own = scores[slots[some, :, :1]]
        others = scores[corruptions]
        first[some] = 1 + (valid & (others > own)).sum(axis=2)
        last[some] = first[some] + (valid & (others == own)).sum(axis=2)
    return first, last


# What a rule for ties makes of the places: sums over the queries, of 1/rank and of the hits at each
# of HITS_AT. They are rounded once, in the end, so that no order of the queries changes them.
_Sums = tuple[float, tuple[float, ...]]


def _at_rank(ranks: Floats) -> _Sums:
    return math.fsum(1.0 / ranks), tuple(float((ranks <= k).sum()) for k in HITS_AT)


def _expected(first: Ints, last: Ints) -> _Sums:
    reciprocals = 1.0 / np.arange(1, last.max() + 1)
    places = last - first + 1
    pairs = [*zip(first.tolist(), last.tolist(), strict=True)]
    # Summed place by place: a difference of two harmonic numbers would lose the digits that they
    # share.
    means = {(low, high): reciprocals[low - 1 : high].mean() for low, high in set(pairs)}
    hits = (np.clip(k - first + 1, 0, places) / places for k in HITS_AT)
    return math.fsum(means[pair] for pair in pairs), tuple(math.fsum(share) for share in hits)


TIES: Mapping[str, Callable[[Ints, Ints], _Sums]] = {
    "optimistic": lambda first, last: _at_rank(first.astype(np.float64)),
    "realistic": lambda first, last: _at_rank((first + last) / 2),
    "pessimistic": lambda first, last: _at_rank(last.astype(np.float64)),
    "expected": _expected,
}
