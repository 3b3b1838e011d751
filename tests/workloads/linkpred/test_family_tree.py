"""The generated family: true by the rules' least fixpoint, asked at the promised depth, the same
everywhere."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from hashlib import blake2b

import numpy as np
import pytest

from kgprof.workloads.linkpred import family_tree
from kgprof.workloads.linkpred.caps import Caps, Dropped
from kgprof.workloads.linkpred.graph import FIRST_PREDICATE, Atom, KnowledgeGraph, Rule
from kgprof.workloads.linkpred.options import LinkpredOptions, load_graph
from kgprof.workloads.linkpred.proof import PROVED, TRUE_STATE, Prover
from kgprof.workloads.linkpred.sampler import sample

DEFAULTS = LinkpredOptions()
DIGESTS = ["a215a9da3264037e", "3ecd98b48f2a3f18", "eafa7755fff3ce97"]


@pytest.fixture(scope="module")
def graph() -> KnowledgeGraph:
    return load_graph(DEFAULTS, seed=0)


def prover(graph: KnowledgeGraph, selection: str = DEFAULTS.selection) -> Prover:
    caps = Caps.from_graph(
        graph,
        atoms=DEFAULTS.max_atoms,
        children=DEFAULTS.max_children,
        width=DEFAULTS.children_width,
    )
    return Prover(graph, caps, selection)


class Closure:
    """All that follows from facts and rules: naive iteration to the least fixpoint, nothing shared
    with the engine."""

    def __init__(self, graph: KnowledgeGraph) -> None:
        self.atoms: set[Atom] = set()
        # 0 stands for any
        self.known: dict[tuple[int, int, int], set[tuple[int, int]]] = defaultdict(set)
        fresh = {tuple(row) for row in graph.train.tolist()}
        while fresh:
            for atom in fresh:
                self.add(atom)
            fresh = {atom for rule in graph.rules for atom in self.conclusions(rule)} - self.atoms

    def add(self, atom: Atom) -> None:
        self.atoms.add(atom)
        predicate, first, second = atom
        for key in (
            (predicate, first, second),
            (predicate, first, 0),
            (predicate, 0, second),
            (predicate, 0, 0),
        ):
            self.known[key].add((first, second))

    def conclusions(self, rule: Rule) -> Iterator[Atom]:
        for binding in self.matches(rule.body, {}):
            yield rule.head[0], binding[rule.head[1]], binding[rule.head[2]]

    def matches(self, body: tuple[Atom, ...], binding: dict[int, int]) -> Iterator[dict[int, int]]:
        if not body:
            yield binding
            return
        (predicate, first, second), *rest = body
        for found in tuple(
            self.known.get((predicate, binding.get(first, 0), binding.get(second, 0)), ())
        ):
            if first != second or found[0] == found[1]:
                yield from self.matches(tuple(rest), {**binding, first: found[0], second: found[1]})

    def of(self, predicate: int) -> set[Atom]:
        return {atom for atom in self.atoms if atom[0] == predicate}


@pytest.mark.parametrize(
    ("size", "seed"), [(family_tree.MINIMUM_SIZE, 0), (family_tree.MINIMUM_SIZE, 7), (240, 3)]
)
def test_what_the_words_mean_is_what_follows_from_the_rules(size: int, seed: int) -> None:
    graph = family_tree.generate(size, seed)

    closure = Closure(graph)

    for relation in family_tree.QUESTIONS:
        predicate = FIRST_PREDICATE + graph.predicates.index(relation)
        told = np.concatenate(
            [split[split[:, 0] == predicate] for split in (graph.train, graph.valid, graph.test)]
        )
        assert {tuple(row) for row in told.tolist()} == closure.of(predicate), relation


def test_every_relation_is_asked_its_share(graph: KnowledgeGraph) -> None:
    asked = Counter(
        graph.predicates[predicate - FIRST_PREDICATE] for predicate in graph.test[:, 0].tolist()
    )

    assert asked == {
        relation: question.percent * 6 for relation, question in family_tree.QUESTIONS.items()
    }
    assert sum(question.percent for question in family_tree.QUESTIONS.values()) == 100


def test_splits_are_apart(graph: KnowledgeGraph) -> None:
    splits = [
        {tuple(row) for row in split.tolist()} for split in (graph.train, graph.valid, graph.test)
    ]

    assert len(set.union(*splits)) == sum(map(len, splits))
    assert graph.notes == ()


def test_no_goal_matches_many_facts_or_rules(graph: KnowledgeGraph) -> None:
    by_first = Counter((p, first) for p, first, _ in graph.train.tolist())
    by_second = Counter((p, second) for p, _, second in graph.train.tolist())
    by_head = Counter(rule.head[0] for rule in graph.rules)

    assert max(by_first.values()) <= family_tree.MOST_CHILDREN
    assert max(by_second.values()) <= family_tree.MOST_CHILDREN
    assert max(by_head.values()) <= 2
    assert max(len(rule.body) for rule in graph.rules) <= 3


def fewest_steps(prover: Prover, query: Atom, limit: int) -> int | None:
    """Choices on the shortest proof, by breadth; None beyond ``limit``."""
    level = {((*query,),)}
    for step in range(1, limit + 1):
        level = {child for state in level for child in prover.derive(state, query)[0]}
        if TRUE_STATE in level:
            return step
    return None


def test_every_question_takes_three_steps_or_more_and_most_have_a_proof_within_the_depth() -> None:
    graph = family_tree.generate(240, 1)
    search = prover(graph)

    steps = Counter(
        fewest_steps(search, tuple(query), DEFAULTS.depth) for query in graph.test.tolist()
    )

    assert min(step for step in steps if step is not None) == 3
    assert steps[None] < 0.1 * len(graph.test)


@pytest.mark.parametrize(
    ("seed", "selection"), [(0, "most-bound"), (1, "most-bound"), (0, "leftmost")]
)
def test_the_default_run_has_enough_deep_proofs_for_any_policy(seed: int, selection: str) -> None:
    """A policy that knows nothing must do. Wanted: 2,000 candidates, 200 proved, 200 in more than
    two steps."""
    graph = load_graph(DEFAULTS, seed)
    candidates = sample(
        graph, queries=DEFAULTS.queries, corruptions=DEFAULTS.corruptions, seed=seed
    )
    search = prover(graph, selection)
    coin = random.Random(seed)

    proofs = [
        search.prove(
            tuple(triple), lambda _, children: coin.randrange(len(children)), DEFAULTS.depth
        )
        for triple in candidates.triples.tolist()
    ]

    deep = [proof for proof in proofs if proof.outcome == PROVED and proof.steps > 2]
    assert len(proofs) == 7040
    assert len(deep) >= 400
    assert {proof.dropped for proof in proofs} == {Dropped()}


def test_corruptions_of_the_default_run_are_all_false(graph: KnowledgeGraph) -> None:
    candidates = sample(graph, queries=DEFAULTS.queries, corruptions=DEFAULTS.corruptions, seed=0)
    true = {
        tuple(row) for split in (graph.train, graph.valid, graph.test) for row in split.tolist()
    }

    corruptions = candidates.triples[candidates.slots[:, :, 1:].ravel()]

    assert not true & {tuple(row) for row in corruptions.tolist()}


def digest(graph: KnowledgeGraph) -> str:
    """Of the triples in words: the same for the same graph, whatever ids or quotes it is given."""
    rows = [row for split in (graph.train, graph.valid, graph.test) for row in split.tolist()]
    words = [
        (graph.constant_text(a), graph.predicate_text(p), graph.constant_text(b))
        for p, a, b in rows
    ]
    return blake2b("\n".join(map("\t".join, words)).encode(), digest_size=8).hexdigest()


def test_the_same_size_and_seed_give_the_same_graph_everywhere() -> None:
    """The digests are of this version's graphs: a change of them is a change of everyone's default
    dataset."""
    assert [
        digest(family_tree.generate(size, seed)) for size, seed in ((600, 0), (600, 1), (120, 0))
    ] == DIGESTS
    assert digest(family_tree.generate(120, -1)) == digest(family_tree.generate(120, 2**64 - 1))


def test_sizes() -> None:
    """About as many people as asked for, in families of the promised width."""
    for size in (family_tree.MINIMUM_SIZE, 1000):
        graph = family_tree.generate(size, 5)
        assert 0.95 * size <= len(graph.constants) <= size
        assert 0.9 * size <= len(graph.test) <= size
