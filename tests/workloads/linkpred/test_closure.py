"""The closure against clingo on 600 random graphs: constants in rules, repeated variables, bodies
of up to three atoms, unsafe heads, predicates without facts; and the query's own triple is no fact.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from kgprof.workloads.linkpred import closure as module
from kgprof.workloads.linkpred.closure import closure, provable
from kgprof.workloads.linkpred.graph import (
    FIRST_PREDICATE,
    Atom,
    KnowledgeGraph,
    build,
    load_directory,
)
from kgprof.workloads.linkpred.rules import RuleFormat, parse_rule
from kgprof.workloads.linkpred.sampler import sample
from tests.workloads.linkpred.random_graphs import random_graph

GRAPHS = 600
OWN = 3  # facts of each graph that are asked for as candidates


@pytest.fixture(scope="module")
def graphs() -> list[KnowledgeGraph]:
    return [random_graph(number) for number in range(GRAPHS)]


def program(graphs: list[KnowledgeGraph]) -> str:
    """``t(G, W, P, A, B)``: in world W of graph G, where world 0 has all facts and world i lacks
    fact i."""

    def atom(atom: Atom) -> str:
        predicate, *terms = atom
        return f"t(G,W,{predicate},{','.join(str(term) if term > 0 else f'V{-term}' for term in terms)})"  # noqa: E501

    lines = []
    for number, graph in enumerate(graphs):
        lines.append(
            f"world({number},0..{min(OWN, len(graph.train))}). "
            f"c({number},1..{len(graph.constants)})."
        )
        for index, (predicate, first, second) in enumerate(graph.train.tolist(), start=1):
            lines.append(
                f"t({number},W,{predicate},{first},{second}) :- world({number},W), W != {index}."
            )
        for rule in graph.rules:
            variables = sorted(
                {term for each in (rule.head, *rule.body) for term in each[1:] if term < 0}
            )
            anything = "".join(f", c({number},V{-term})" for term in variables)
            body = ", ".join(map(atom, rule.body)).replace("G,", f"{number},")
            head = atom(rule.head).replace("G,", f"{number},")
            lines.append(f"{head} :- {body}, world({number},W){anything}.")
    return "\n".join(lines)


@pytest.fixture(scope="module")
def truth(graphs: list[KnowledgeGraph]) -> set[tuple[int, ...]]:
    clingo = pytest.importorskip("clingo", reason="clingo is not installed")
    control = clingo.Control(["--warn=none"])
    control.add("base", [], program(graphs))
    control.ground([("base", [])])
    found = (atom.symbol for atom in control.symbolic_atoms.by_signature("t", 5))
    return {tuple(argument.number for argument in symbol.arguments) for symbol in found}


def every_triple(graph: KnowledgeGraph) -> np.ndarray:
    terms = range(1, len(graph.constants) + 1)
    predicates = range(FIRST_PREDICATE, FIRST_PREDICATE + len(graph.predicates))
    return np.array([*itertools.product(predicates, terms, terms)], dtype=np.int64)


def test_the_fixpoint_is_clingos(graphs: list[KnowledgeGraph], truth: set[tuple[int, ...]]) -> None:
    derived = 0
    for number, graph in enumerate(graphs):
        whole, triples = closure(graph), every_triple(graph)

        expected = [(number, 0, *triple) in truth for triple in triples.tolist()]

        assert whole.complete
        assert whole.holds(triples).tolist() == expected
        assert whole.size == sum(expected)
        derived += whole.size - len(graph.train)
    assert derived > 5_000
    lengths = {len(rule.body) for graph in graphs for rule in graph.rules}
    assert lengths == {1, 2, 3}


def test_a_fact_is_provable_if_the_others_prove_it(
    graphs: list[KnowledgeGraph], truth: set[tuple[int, ...]]
) -> None:
    answers = []
    for number, graph in enumerate(graphs):
        own = graph.train[:OWN]

        held, known = provable(graph, closure(graph), own)

        assert known.all()
        assert held.tolist() == [
            (number, 1 + index, *fact) in truth for index, fact in enumerate(own.tolist())
        ]
        answers += held.tolist()
    assert 100 < sum(answers) < len(answers) - 100


def test_small_blocks_give_the_same(
    graphs: list[KnowledgeGraph], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = [closure(graph) for graph in graphs[:100]]
    monkeypatch.setattr(module, "BLOCK", 3)

    for graph, before in zip(graphs, whole, strict=False):
        after = closure(graph)
        assert {p: r.forward.tolist() for p, r in after.relations.items()} == {
            p: r.forward.tolist() for p, r in before.relations.items()
        }


def test_a_closure_that_grows_too_large_knows_only_what_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = [f"c{number:03}" for number in range(200)]
    rules = [
        parse_rule(f"p(X,Y) :- {body}.", RuleFormat.PROLOG)
        for body in ("next(X,Y)", "next(X,Z), p(Z,Y)")
    ]
    chain = [(one, "next", other) for one, other in itertools.pairwise(names)]
    graph = build(
        name="chain",
        train=chain,
        test=[(names[0], "p", names[-1]), (names[0], "p", names[1])],
        rules=rules,
    )
    monkeypatch.setattr(module, "MOST_TRIPLES", 1_000)

    whole = closure(graph)
    held, known = provable(graph, whole, graph.test)

    assert not whole.complete
    assert sorted(zip(held.tolist(), known.tolist(), strict=True)) == [(False, False), (True, True)]


@pytest.mark.shared
def test_220_of_familys_20200_candidates_are_provable(shared: Path) -> None:
    graph = load_directory(shared / "data" / "family")
    candidates = sample(graph, queries=100, corruptions=100, seed=0)

    held, known = provable(graph, closure(graph), candidates.triples)

    assert (len(held), int(held.sum()), bool(known.all())) == (20_200, 220, True)
