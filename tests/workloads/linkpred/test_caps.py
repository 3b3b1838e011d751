"""Caps from the data: wide enough for every look-up that a ground query's search can make, and no
wider."""

from __future__ import annotations

import random

import pytest
import torch

from kgprof.errors import UsageError
from kgprof.workloads.linkpred import caps as caps_module
from kgprof.workloads.linkpred.caps import Caps, Dropped, Selection, fact_fanout, free_goals
from kgprof.workloads.linkpred.graph import FIRST_PREDICATE, KnowledgeGraph
from kgprof.workloads.linkpred.policy import VARIABLES
from kgprof.workloads.linkpred.proof import Prover
from kgprof.workloads.linkpred.strategies.fused import Fused
from tests.workloads.linkpred import written
from tests.workloads.linkpred.evaluations import evaluate, reference, same, workload
from tests.workloads.linkpred.random_graphs import random_graph

# p: 3 facts from a, 2 into c; q: 4 into e; r: 5 from a.
FACTS = """
    p(a, b). p(a, c). p(a, d). p(b, c).
    q(a, e). q(b, e). q(c, e). q(d, e). q(a, b).
    r(a, a). r(a, b). r(a, c). r(a, d). r(a, e).
"""


def free(rules: str, selection: str) -> set[str]:
    graph = written.graph(FACTS, rules)
    return {
        graph.predicates[predicate - FIRST_PREDICATE]
        for predicate in free_goals(graph.rules, selection)
    }


def test_sizes_come_from_the_data_unless_they_are_given() -> None:
    graph = written.graph(FACTS, "h(X, Y) :- p(X, Y). h(X, Y) :- q(X, Y). g(X, Y) :- h(Y, X).")

    assert Caps.from_graph(graph, atoms=6, children=64) == Caps(
        atoms=6, children=64, width=64, facts=4, rules=2
    )
    assert Caps.from_graph(graph, atoms=6, children=64, width=70, facts=3, rules=1) == Caps(
        atoms=6, children=64, width=70, facts=3, rules=1
    )


def test_only_predicates_in_a_body_are_looked_up_by_range() -> None:
    # r has the widest range, and is only ever asked as a ground query.
    assert (
        fact_fanout(written.graph(FACTS, "r(X, Y) :- p(X, Z), p(Z, Y)."), Selection.MOST_BOUND) == 3
    )
    assert (
        fact_fanout(written.graph(FACTS, "p(X, Y) :- r(X, Z), q(Z, Y)."), Selection.MOST_BOUND) == 5
    )
    assert fact_fanout(written.graph(FACTS, ""), Selection.MOST_BOUND) == 1


@pytest.mark.parametrize(
    ("rule", "most_bound", "leftmost"),
    [
        ("h(X, Y) :- p(X, Z), q(Z, Y).", "", ""),  # a chain
        ("h(X, Y) :- q(Z, Y), p(X, Z).", "", ""),
        ("h(X, Y) :- p(X, Z), r(Z, W), q(W, Y).", "", ""),
        ("h(X, Y) :- r(Z, W), p(X, Z), q(W, Y).", "", "r"),  # its middle first
        ("h(X, Y) :- p(X, X), q(Y, Y).", "", ""),  # asked as a ground query only
        # h(a, V): q(V, V) is loose
        ("h(X, Y) :- p(X, X), q(Y, Y). g(X, Y) :- h(X, Z), r(Z, Y).", "hpqr", "q"),
        ("h(X, Y) :- p(X, Y), r(Z, W).", "pr", "r"),
        ("h(X, Y) :- p(X, Y), r(Z, a).", "", ""),  # its constant is enough
        ("h(X, a) :- p(X, Z), h(X, Z).", "hp", ""),  # h(V, a) leaves no constant behind
        ("h(X, X) :- p(X, Z), h(Z, X).", "", ""),
        ("h(X, Y) :- p(X, Z), h(Z, W).", "hp", "hp"),  # unsafe: V of h(a, V) stays free
        ("h(X, Y) :- p(X, Z), h(Z, Y). h(X, Y) :- q(X, Y).", "", ""),
        # g(a, V) asks r(Z, V) first
        ("h(X, Y) :- g(X, Z), p(Z, Y). g(X, Y) :- r(Z, Y), q(X, Z).", "", "r"),
    ],
)
def test_goals_that_may_come_up_with_no_bound_argument(
    rule: str, most_bound: str, leftmost: str
) -> None:
    assert (free(rule, "most-bound"), free(rule, "leftmost")) == (set(most_bound), set(leftmost))


def test_a_free_goal_widens_the_look_up_while_that_is_affordable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = written.graph(FACTS, "h(X, Y) :- q(Z, W), p(X, Z), p(W, Y).")

    assert fact_fanout(graph, Selection.MOST_BOUND) == 4
    assert fact_fanout(graph, Selection.LEFTMOST) == 5  # all of q
    monkeypatch.setattr(caps_module, "FREE_GOAL_FACTS", 4)
    assert fact_fanout(graph, Selection.LEFTMOST) == 4


@pytest.mark.parametrize("selection", list(Selection))
def test_searches_of_ground_queries_never_look_past_the_default(selection: Selection) -> None:
    narrower = 0
    for seed in range(300):
        graph = random_graph(seed, constants=5)
        caps = Caps.from_graph(graph, atoms=4, children=1000, selection=selection)
        widest = max(
            len(graph.train[graph.train[:, 0] == predicate]) for predicate in set(graph.train[:, 0])
        )
        narrower += caps.facts < widest
        assert searched(graph, caps, selection) == (0, 0)

    # Not by taking the widest range there is: the analysis rules the free goals out often.
    assert narrower > 50


def searched(graph: KnowledgeGraph, caps: Caps, selection: Selection) -> tuple[int, int]:
    """(facts, rules) beyond the caps on all ways, three steps deep, from some ground queries."""
    choose = random.Random(0)
    prover = Prover(graph, caps, selection)
    total = Dropped()
    terms = range(1, len(graph.constants) + 1)
    for _ in range(10):
        own = (
            FIRST_PREDICATE + choose.randrange(len(graph.predicates)),
            choose.choice(terms),
            choose.choice(terms),
        )
        frontier = {(own,)}
        for _ in range(4):
            derived = [prover.derive(state, own) for state in sorted(frontier)[:40]]
            frontier = {child for children, _ in derived for child in children}
            for _, dropped in derived:
                total = total.plus(dropped)
    return total.facts, total.rules


@pytest.mark.parametrize(
    ("caps", "message"),
    [
        ({"atoms": 0}, "the cap on atoms is 0"),
        ({"children": 0}, "the cap on children is 0"),
        ({"facts": -1}, "the cap on facts is -1"),
        ({"rules": 0}, "the cap on rules is 0"),
        ({"width": 3}, "width is 3, below the cap of 4 children"),
    ],
)
def test_a_cap_that_leaves_nothing_is_refused(caps: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Caps(**{"atoms": 4, "children": 4, "width": 4, "facts": 4, "rules": 4, **caps})


def test_caps_taken_from_the_data_drop_nothing() -> None:
    """At a depth where 6 atoms or 3 children would."""
    dropping = workload("--max-atoms", "2")
    free = workload("--max-atoms", "auto", "--max-children", "auto")
    longest = max(len(rule.body) for rule in free.graph.rules)

    assert any(reference(dropping).dropped)
    assert free.caps.atoms == 1 + free.options.depth * (longest - 1)
    assert free.caps.children == free.caps.width == free.caps.facts + free.caps.rules
    assert not any(reference(free).dropped)
    assert same(evaluate(free, Fused).found, reference(free))


def test_neither_weights_nor_shapes_depend_on_the_caps() -> None:
    """21 atoms have 42 variables, more than the table has rows for."""
    few, many = (workload("--max-atoms", atoms).policy() for atoms in ("3", "21"))

    assert {name: tensor.shape for name, tensor in few.state_dict().items()} == {
        name: tensor.shape for name, tensor in many.state_dict().items()
    }
    assert all(torch.equal(one, many.state_dict()[name]) for name, one in few.state_dict().items())
    state = torch.tensor([[[3, 1, few.sizes.terms - VARIABLES]]], dtype=torch.int32)
    assert torch.equal(few.encode(state), many.encode(state))
    # The 13th variable has the first one's row.
    assert torch.equal(many.encode(state + torch.tensor([0, 0, VARIABLES])), many.encode(state))
