"""What is sampled depends on texts and the seed, and on nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from time import perf_counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgprof.errors import UsageError
from kgprof.workloads.linkpred import sampler
from kgprof.workloads.linkpred.family_tree import generate
from kgprof.workloads.linkpred.graph import KnowledgeGraph, Triple, build, load_directory
from kgprof.workloads.linkpred.rules import RuleFormat, parse_rule
from kgprof.workloads.linkpred.sampler import HEAD, NO_CANDIDATE, TAIL, Candidates, Sampling, sample
from tests.workloads.linkpred.written import described

# `lonely` occurs in no triple
RULES = (parse_rule("q(X,Y) :- p(Y,X), p(X,lonely).", RuleFormat.PROLOG),)

ENTITIES = st.sampled_from([f"e{index}" for index in range(7)])
TRIPLES = st.lists(st.tuples(ENTITIES, st.sampled_from("pq"), ENTITIES), min_size=1, max_size=12)
SEEDS = st.integers(-(2**70), 2**70)


def graph_of(
    train: Sequence[Triple], test: Sequence[Triple], valid: Sequence[Triple] = ()
) -> KnowledgeGraph:
    return build(name="any", train=train, valid=valid, test=test, rules=RULES)


def in_words(graph: KnowledgeGraph, candidates: Candidates) -> dict[tuple[str, str], list[str]]:
    """(query, side) -> corruptions in order, as text, so that graphs with other ids can be
    compared."""
    words = {}
    for query, row in zip(candidates.queries, candidates.slots, strict=True):
        for side, name in enumerate(sampler.SIDES):
            valid = row[side][row[side] != NO_CANDIDATE]
            words[described(graph, query), name] = [
                described(graph, candidates.triples[slot]) for slot in valid
            ]
    return words


@given(
    train=TRIPLES,
    valid=TRIPLES,
    test=TRIPLES,
    count=st.one_of(st.none(), st.integers(0, 9)),
    seed=SEEDS,
)
@settings(deadline=None)
def test_each_row_is_its_query_and_then_different_unknown_corruptions_of_one_side(
    train: list[Triple], valid: list[Triple], test: list[Triple], count: int | None, seed: int
) -> None:
    graph = graph_of(train, test, valid)
    known = {
        tuple(row) for split in (graph.train, graph.valid, graph.test) for row in split.tolist()
    }
    entities = {term for triple in known for term in triple[1:]}

    candidates = sample(graph, queries=None, corruptions=count, seed=seed)

    for query, row in zip(candidates.queries.tolist(), candidates.slots, strict=True):
        for side in (HEAD, TAIL):
            slots = row[side][row[side] != NO_CANDIDATE]
            # the padding stands at the end
            assert row[side, : len(slots)].tolist() == slots.tolist()
            own, *corruptions = map(tuple, candidates.triples[slots].tolist())
            assert own == tuple(query)
            assert all(
                triple[0] == query[0] and triple[2 - side] == query[2 - side]
                for triple in corruptions
            )
            possible = {
                e
                for e in entities
                if ((query[0], e, query[2]), (query[0], query[1], e))[side] not in known
            }
            drawn = [triple[1 + side] for triple in corruptions]
            assert (
                len(drawn)
                == len(set(drawn))
                == min(len(possible), len(possible) if count is None else count)
            )
            assert set(drawn) <= possible


@given(train=TRIPLES, test=TRIPLES, count=st.integers(0, 9), seed=SEEDS)
@settings(deadline=None)
def test_every_candidate_has_one_slot(
    train: list[Triple], test: list[Triple], count: int, seed: int
) -> None:
    candidates = sample(graph_of(train, test), queries=None, corruptions=count, seed=seed)

    slots = candidates.slots[candidates.slots != NO_CANDIDATE]
    assert slots.tolist() == list(range(len(candidates.triples)))
    assert candidates.slots.shape == (len(candidates.queries), 2, 1 + count)
    assert candidates.invalid == candidates.slots.size - len(candidates.triples)


@given(train=TRIPLES, test=TRIPLES, seed=SEEDS, data=st.data())
@settings(deadline=None)
def test_order_of_lines_other_queries_and_other_names_change_no_draw(
    train: list[Triple], test: list[Triple], seed: int, data: st.DataObject
) -> None:
    graph = graph_of(train, test)
    fewer = data.draw(st.lists(st.sampled_from(test), min_size=1, unique=True))
    # Unasked triples stay known: they are facts here. A new predicate and a rule's constant shift
    # the ids.
    moved = [
        *reversed(train),
        *(triple for triple in test if triple not in fewer),
        ("e0", "a relation of its own", "e0"),
    ]
    changed = graph_of([*moved, ("e0", "p", "e0")], list(reversed(fewer)))
    graph = graph_of([*train, ("e0", "p", "e0"), ("e0", "r", "e0")], test)

    drawn = in_words(graph, sample(graph, queries=None, corruptions=3, seed=seed))
    again = in_words(changed, sample(changed, queries=0, corruptions=3, seed=seed))

    assert again == {key: drawn[key] for key in again}


@given(train=TRIPLES, test=TRIPLES, seed=SEEDS, fewer=st.integers(0, 4), more=st.integers(0, 4))
@settings(deadline=None)
def test_asking_for_more_corruptions_keeps_the_first_ones(
    train: list[Triple], test: list[Triple], seed: int, fewer: int, more: int
) -> None:
    graph = graph_of(train, test)

    few = in_words(graph, sample(graph, queries=None, corruptions=fewer, seed=seed))
    many = in_words(graph, sample(graph, queries=None, corruptions=fewer + more, seed=seed))
    every = in_words(graph, sample(graph, queries=None, corruptions=None, seed=seed))

    assert (
        few
        == {key: row[: 1 + fewer] for key, row in many.items()}
        == {k: row[: 1 + fewer] for k, row in every.items()}
    )


def test_more_queries_keep_the_first_ones_and_stay_in_order() -> None:
    graph = generate(120, 0)

    few, many = (sample(graph, queries=count, corruptions=2, seed=4) for count in (10, 30))

    assert {tuple(row) for row in few.queries.tolist()} < {
        tuple(row) for row in many.queries.tolist()
    }
    assert many.queries.tolist() == sorted(many.queries.tolist())
    assert len(many.queries) == 30
    few_words, many_words = in_words(graph, few), in_words(graph, many)
    assert few_words == {key: many_words[key] for key in few_words}


def test_seeds_and_sides_draw_differently_and_evenly() -> None:
    """400 draws of 1 of 119 entities: any of them may come, none more than a few times too
    often."""
    graph = generate(120, 0)

    one, two = (sample(graph, queries=100, corruptions=2, seed=seed) for seed in (1, 2))

    assert one.queries.tolist() != two.queries.tolist()
    first, second = (one.triples[one.slots[:, side, 1:], 1 + side] for side in (HEAD, TAIL))
    assert (first != second).any()
    counts = np.bincount(
        np.concatenate([first, second]).ravel(), minlength=len(graph.constants) + 1
    )[1:]
    assert counts.sum() == 400
    assert counts.max() <= 14
    assert (counts > 0).sum() > 90


def test_too_few_possible_corruptions_are_padded_and_noted() -> None:
    graph = graph_of([("a1", "p", "b1"), ("c1", "p", "d1")], [("a1", "p", "d1")])

    candidates = sample(graph, queries=None, corruptions=5, seed=0)

    # For p(?, d1) a1 and c1 are known, for p(a1, ?) b1 and d1; `lonely` stands in no triple.
    assert candidates.slots.tolist() == [[[0, 1, 2, -1, -1, -1], [3, 4, 5, -1, -1, -1]]]
    assert candidates.invalid == 6
    assert candidates.notes == ("2 of 2 query sides have fewer than 5 corruptions, the fewest 2",)
    assert {described(graph, row) for row in candidates.triples} == {
        *("p(a1, d1)", "p(b1, d1)", "p(d1, d1)"),
        *("p(a1, a1)", "p(a1, c1)"),
    }


def test_a_query_all_of_whose_corruptions_are_known_stands_alone() -> None:
    graph = graph_of([("a1", "p", "a1")], [("a1", "p", "b1"), ("b1", "p", "b1"), ("b1", "p", "a1")])

    candidates = sample(graph, queries=None, corruptions=None, seed=0)

    assert candidates.slots.tolist() == [[[0], [1]], [[2], [3]], [[4], [5]]]
    assert candidates.notes == ()


def test_more_queries_than_there_are_is_all_of_them_and_noted() -> None:
    graph = graph_of([("a1", "p", "b1")], [("b1", "p", "a1"), ("b1", "q", "a1")])

    candidates = sample(graph, queries=5, corruptions=1, seed=0)

    assert candidates.queries.tolist() == graph.test.tolist()
    assert candidates.notes[0] == "5 queries requested, but test has 2: all are evaluated"


def test_the_draw_is_by_these_hashes() -> None:
    """Said again without numpy: what this draws from a seed must stay, or everyone's results change
    with a release."""
    names = [f"e{index}" for index in range(20)]
    graph = graph_of([(name, "p", "e0") for name in names], [("e3", "p", "e9")])

    candidates = sample(graph, queries=1, corruptions=4, seed=7)

    def blake(*words: str) -> int:
        return int.from_bytes(blake2b("\n".join(words).encode(), digest_size=8).digest(), "little")

    def mixed(word: int) -> int:
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            word = (word ^ word >> shift) * factor % 2**64
        return word ^ word >> 31

    def drawn(side: str, possible: list[str]) -> list[str]:
        key = blake(f"{side} corrupted", "7", "p", "e3", "e9")
        return sorted(possible, key=lambda name: mixed(blake("entity", name) ^ key))[:4]

    heads = drawn("head", [name for name in names if name != "e3"])
    tails = drawn("tail", [name for name in names if name not in ("e0", "e9")])
    assert in_words(graph, candidates) == {
        ("p(e3, e9)", "head"): ["p(e3, e9)", *(f"p({head}, e9)" for head in heads)],
        ("p(e3, e9)", "tail"): ["p(e3, e9)", *(f"p(e3, {tail})" for tail in tails)],
    }


def test_nothing_to_ask_is_an_error() -> None:
    with pytest.raises(UsageError, match="no test triple"):
        sample(graph_of([("a1", "p", "b1")], []), queries=None, corruptions=1, seed=0)


def test_what_does_not_fit_into_memory_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "MOST_SLOTS", 11)
    graph = graph_of([("a1", "p", "b1")], [("b1", "p", "a1")])

    assert sample(graph, queries=None, corruptions=4, seed=0).slots.size == 10
    with pytest.raises(UsageError) as error:
        sample(graph, queries=None, corruptions=5, seed=0)
    assert "12 candidates, more than the 11" in str(error.value)
    assert "--queries or --corruptions" in error.value.hint


def test_equal_hashes_go_by_position() -> None:
    hashes = np.array([5, 3, 5, 3, 9, 5], dtype=np.uint64)

    assert [sampler._smallest(hashes, count).tolist() for count in range(5)] == [
        [],
        [1],
        [1, 3],
        [1, 3, 0],
        [1, 3, 0, 2],
    ]


def test_the_mixing_is_splitmix64s() -> None:
    """Its first output from the state 0, as published (mix of the golden gamma)."""
    gamma = np.array([0x9E3779B97F4A7C15], dtype=np.uint64)

    assert sampler._mix(gamma).tolist() == [0xE220A8397B1DCDAF]


@pytest.mark.shared
def test_all_entities_of_wordnet_are_ranked_in_reasonable_time(shared: Path) -> None:
    graph = load_directory(shared / "data" / "wn18rr")

    start = perf_counter()
    candidates = sample(graph, queries=100, corruptions=None, seed=0)
    elapsed = perf_counter() - start

    assert len(candidates.queries) == 100
    assert len(candidates.triples) > 100 * 2 * 40_000
    assert elapsed < 30  # 1.5 s on two quiet cores


def test_corruptions_stay_in_the_domain_of_what_they_replace() -> None:
    """Some corruptions of every query, all of the head's domain on one side and of the tail's on
    the other."""
    words = [f"c{number}" for number in range(8)] + [f"r{number}" for number in range(4)]
    train = [(word, "in", f"r{number % 4}") for number, word in enumerate(words[:8])]
    graph = graph_of(train, [("c0", "in", "r1")])
    domains = np.array([0, *(1 if text.startswith("c") else 2 for text in graph.constants)])

    typed = sample(replace(graph, domains=domains), queries=None, corruptions=None, seed=0)

    query, slots = typed.queries[0], typed.slots[0]
    heads, tails = (
        typed.triples[slots[side, 1:][slots[side, 1:] >= 0], 1 + side] for side in (HEAD, TAIL)
    )
    assert {graph.constant_text(head) for head in heads} == {
        f"c{number}" for number in (2, 3, 4, 6, 7)
    }
    assert {graph.constant_text(tail) for tail in tails} == {"r2", "r3"}
    assert query.tolist() in typed.triples.tolist()


def test_any_range_of_queries_has_the_candidates_that_it_has_among_all() -> None:
    graph = generate(120, 0)
    sampling = Sampling(graph, queries=30, corruptions=7, seed=5)
    together = sample(graph, queries=30, corruptions=7, seed=5).triples.tolist()

    apart = [sampling.candidates(start, start + 11).triples.tolist() for start in (0, 11, 22)]

    assert [triple for part in apart for triple in part] == together
