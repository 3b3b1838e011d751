"""Ranks against PyKEEN's evaluator, and against every way to break the ties."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgprof.reading.link_prediction import RankMetrics
from kgprof.workloads.linkpred.graph import KnowledgeGraph, build
from kgprof.workloads.linkpred.ranking import BOTH_SIDES, TIES, Ranking, rank
from kgprof.workloads.linkpred.sampler import SIDES, Candidates, sample


def candidates_of(rows: list[tuple[int, int]], width: int) -> Candidates:
    """One query per row, with that many corruptions of its head and of its tail; no triple's
    content matters."""
    counts = np.array(rows)
    filled = np.arange(1 + width) <= counts[:, :, None]
    slots = np.where(filled, filled.ravel().cumsum().reshape(filled.shape) - 1, -1)
    triples = np.zeros((int(filled.sum()), 3), dtype=np.int64)
    return Candidates(
        queries=np.zeros((len(rows), 3), dtype=np.int64), triples=triples, slots=slots
    )


def metrics_of(ranking: Ranking, side: str, ties: str) -> RankMetrics:
    (found,) = (each for each in ranking.metrics if (each.side, each.ties) == (side, ties))
    return found


def test_one_query_by_hand() -> None:
    """Head: two above, three level, one below: places 3 to 6. Tail: nothing to compare with: place
    1."""
    candidates = candidates_of([(6, 0)], width=7)
    scores = np.array([0.5, 0.9, 0.5, 0.7, 0.5, 0.1, 0.5, 0.0])

    ranking = rank(scores, candidates)

    def metrics(side: str, ties: str, mrr: float, *hits: float) -> RankMetrics:
        queries = 2 if side == BOTH_SIDES else 1
        return RankMetrics(
            side=side,
            ties=ties,
            queries=queries,
            mrr=mrr,
            hits_at_1=hits[0],
            hits_at_3=hits[1],
            hits_at_10=hits[2],
        )

    expected = (1 / 3 + 1 / 4 + 1 / 5 + 1 / 6) / 4
    assert ranking == Ranking(
        nan_scores=0,
        metrics=(
            metrics("head", "optimistic", 1 / 3, 0.0, 1.0, 1.0),
            metrics("head", "realistic", 1 / 4.5, 0.0, 0.0, 1.0),
            metrics("head", "pessimistic", 1 / 6, 0.0, 0.0, 1.0),
            metrics("head", "expected", expected, 0.0, 0.25, 1.0),
            *(metrics("tail", ties, 1.0, 1.0, 1.0, 1.0) for ties in TIES),
            metrics("both", "optimistic", (1 / 3 + 1) / 2, 0.5, 1.0, 1.0),
            metrics("both", "realistic", (1 / 4.5 + 1) / 2, 0.5, 0.5, 1.0),
            metrics("both", "pessimistic", (1 / 6 + 1) / 2, 0.5, 0.5, 1.0),
            metrics("both", "expected", (expected + 1) / 2, 0.5, 0.625, 1.0),
        ),
    )


def test_padding_is_never_ranked() -> None:
    """-1 as an index would read the last candidate's score, here the best of all."""
    scores = np.array([0.2, 0.1, 0.9])

    ranking = rank(scores, candidates_of([(1, 0)], width=5))

    assert {each.mrr for each in ranking.metrics if each.side == "head"} == {1.0}


def test_nan_scores_are_the_worst_and_are_counted() -> None:
    nan = float("nan")
    scores = np.array([nan, 0.0, nan, 1.0, nan, -np.inf])

    ranking = rank(scores, candidates_of([(2, 2)], width=2))

    assert ranking.nan_scores == 3
    # 0.0 is above, the other NaN level
    assert metrics_of(ranking, "head", "optimistic").mrr == 1 / 2
    assert metrics_of(ranking, "head", "pessimistic").mrr == 1 / 3
    assert metrics_of(ranking, "tail", "pessimistic").mrr == 1.0


def test_scores_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match="3 candidates"):
        rank(np.zeros(4), candidates_of([(1, 0)], width=1))


LEVELS = st.sampled_from([0.0, 0.5, 1.0])


@given(
    rows=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=3),
    data=st.data(),
)
@settings(deadline=None)
def test_expected_is_the_mean_over_all_ways_to_break_the_ties(
    rows: list[tuple[int, int]], data: st.DataObject
) -> None:
    candidates = candidates_of(rows, width=4)
    scores = np.array(
        data.draw(
            st.lists(LEVELS, min_size=len(candidates.triples), max_size=len(candidates.triples))
        )
    )

    ranking = rank(scores, candidates)

    means = [
        [all_orders(scores[row[side][row[side] >= 0]]) for row in candidates.slots]
        for side in range(len(SIDES))
    ]
    for side, values in (*zip(SIDES, means, strict=True), (BOTH_SIDES, means[0] + means[1])):
        found = metrics_of(ranking, side, "expected")
        ours = [found.mrr, found.hits_at_1, found.hits_at_3, found.hits_at_10]
        assert ours == pytest.approx(np.mean(values, axis=0).tolist(), rel=1e-14, abs=1e-14)


def all_orders(scores: np.ndarray) -> list[float]:
    """Mean 1/rank and hits at 1, 3, 10 of the first score over every order of the candidates,
    higher scores first."""
    ranks = [
        # sorted keeps the order of equals
        1 + sorted(order, key=lambda index: -scores[index]).index(0)
        for order in permutations(range(len(scores)))
    ]
    return [
        float(np.mean([1 / each for each in ranks])),
        *(float(np.mean([r <= k for r in ranks])) for k in (1, 3, 10)),
    ]


@given(
    rows=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=4),
    data=st.data(),
)
@settings(deadline=None)
def test_the_rules_for_ties_stand_in_order(
    rows: list[tuple[int, int]], data: st.DataObject
) -> None:
    candidates = candidates_of(rows, width=6)
    scores = np.array(
        data.draw(
            st.lists(LEVELS, min_size=len(candidates.triples), max_size=len(candidates.triples))
        )
    )

    ranking = rank(scores, candidates)

    for side in (*SIDES, BOTH_SIDES):
        best, realistic, worst, expected = (
            metrics_of(ranking, side, ties).mrr
            for ties in ("optimistic", "realistic", "pessimistic", "expected")
        )
        # 1/rank is convex, so that its mean lies above the 1/rank of the mean.
        assert worst <= realistic + 1e-15 <= expected + 2e-15 <= best + 3e-15


# PyKEEN's evaluator, on the three graphs that lie in its wheel.


def pykeen_dataset(name: str) -> Any:
    import pykeen.datasets

    return getattr(pykeen.datasets, name)()


def graph_from(dataset: Any) -> KnowledgeGraph:
    entities, relations = (
        {index: label for label, index in ids.items()}
        for ids in (dataset.entity_to_id, dataset.relation_to_id)
    )

    def triples(factory: Any) -> list[tuple[str, str, str]]:
        return [
            (entities[h], relations[r], entities[t]) for h, r, t in factory.mapped_triples.tolist()
        ]

    return build(
        name="pykeen",
        train=triples(dataset.training),
        valid=triples(dataset.validation),
        test=triples(dataset.testing),
    )


def pykeen_metrics(dataset: Any, table: np.ndarray) -> Any:
    """PyKEEN's own filtered evaluation of ``table`` [relation, head, tail], by the steps of its
    evaluation loop."""
    import torch
    from pykeen.evaluation import RankBasedEvaluator
    from pykeen.evaluation.evaluator import create_sparse_positive_filter_, filter_scores_

    evaluator = RankBasedEvaluator(
        metrics=["mrr", "hits@k", "hits@k", "hits@k"],
        metrics_kwargs=[None, {"k": 1}, {"k": 3}, {"k": 10}],
        add_defaults=False,
    )
    factories = (dataset.training, dataset.validation, dataset.testing)
    known = torch.cat([factory.mapped_triples for factory in factories])
    scores = torch.from_numpy(table)
    batch = dataset.testing.mapped_triples
    rows = torch.arange(len(batch))
    for target, column, all_scores in (
        ("head", 0, scores[batch[:, 1], :, batch[:, 2]]),
        ("tail", 2, scores[batch[:, 1], batch[:, 0], :]),
    ):
        positives, _ = create_sparse_positive_filter_(batch, known, filter_col=column)
        true = all_scores[rows, batch[:, column]].clone()
        filtered = filter_scores_(all_scores.clone(), positives)
        filtered[rows, batch[:, column]] = true
        evaluator.process_scores_(batch, target, filtered, true.unsqueeze(-1))
    # PyKEEN's ranks are exact, its realistic ones in float32; its metrics compute in the type that
    # they are given.
    for key, ranks in evaluator.ranks.items():
        evaluator.ranks[key] = [each.astype(np.float64) for each in ranks]
    return evaluator.finalize()


@pytest.mark.parametrize("levels", [2, 5, 1000])
@pytest.mark.parametrize("name", ["Nations", "Kinships", "UMLS"])
def test_equal_to_pykeen_in_every_mode(name: str, levels: int) -> None:
    dataset = pykeen_dataset(name)
    graph = graph_from(dataset)
    shape = (dataset.num_relations, dataset.num_entities, dataset.num_entities)
    table = np.random.default_rng(levels).integers(levels, size=shape) / levels
    relation_ids = [dataset.relation_to_id[text] for text in graph.predicates]
    entity_ids = [dataset.entity_to_id[text] for text in graph.constants]
    candidates = sample(graph, queries=None, corruptions=None, seed=0)
    predicates, heads, tails = (candidates.triples - (3, 1, 1)).T

    ours = rank(
        table[np.ix_(relation_ids, entity_ids, entity_ids)][predicates, heads, tails], candidates
    )

    theirs = pykeen_metrics(dataset, table)
    compared = [each for each in ours.metrics if each.ties != "expected"]
    assert len(compared) == 9
    for each in compared:
        values = [
            theirs.get_metric(f"{each.side}.{each.ties}.{metric}")
            for metric in ("inverse_harmonic_mean_rank", "hits_at_1", "hits_at_3", "hits_at_10")
        ]
        assert [each.mrr, each.hits_at_1, each.hits_at_3, each.hits_at_10] == pytest.approx(
            values, rel=1e-12, abs=0
        )
