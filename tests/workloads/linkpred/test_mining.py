"""Mined rules: counted by hand on a small graph and by brute force on a random one."""

from __future__ import annotations

import itertools

import numpy as np

from kgprof.workloads.linkpred.graph import build
from kgprof.workloads.linkpred.mining import LEAST_CONFIDENCE, LEAST_SUPPORT, MOST_PER_HEAD, mined
from tests.workloads.linkpred.random_graphs import random_graph


def test_an_inverse_and_a_path_are_found_with_their_confidence() -> None:
    parents = [(f"a{i}", "parent", f"b{i}") for i in range(6)] + [
        (f"b{i}", "parent", f"c{i}") for i in range(6)
    ]
    children = [(tail, "child", head) for head, _, tail in parents]
    grand = [(f"a{i}", "grand", f"c{i}") for i in range(5)]  # one is missing

    rules, note = mined(build(name="kin", train=[*parents, *children, *grand], test=grand[:1]))

    child, grand_id, parent = 3, 4, 5
    found = {(rule.head[0], rule.body): rule.weight for rule in rules}
    assert found[parent, ((child, -2, -1),)] == 1.0
    assert found[child, ((parent, -2, -1),)] == 1.0
    assert found[grand_id, ((parent, -1, -3), (parent, -3, -2))] == 5 / 6
    assert found[grand_id, ((parent, -1, -3), (child, -2, -3))] == 5 / 6
    assert (parent, ((parent, -1, -2),)) not in found
    assert note.startswith(
        f"{len(rules)} rules mined from train: closed paths of length 1 and 2, confidence from 0.5"
    )


def test_every_rule_is_counted_right_and_none_is_missing() -> None:
    graph = random_graph(4, constants=8, facts_per_predicate=40)
    facts = {tuple(fact) for fact in graph.train.tolist()}
    terms, predicates = range(1, len(graph.constants) + 1), sorted({fact[0] for fact in facts})
    rules, _ = mined(graph)

    def holds(atom: tuple[int, int, int], binding: dict[int, int]) -> bool:
        return (atom[0], binding[atom[1]], binding[atom[2]]) in facts

    steps = [(p, a, b) for p in predicates for a, b in ((-1, -2), (-2, -1))]
    lefts, rights = (
        [(p, *turned) for p in predicates for turned in (pair, pair[::-1])]
        for pair in ((-1, -3), (-3, -2))
    )
    expected = {}
    for body in [*((step,) for step in steps), *itertools.product(lefts, rights)]:
        pairs = {
            (x, y)
            for x, y, z in itertools.product(terms, repeat=3)
            if all(holds(atom, {-1: x, -2: y, -3: z}) for atom in body)
        }
        for head in predicates:
            support = sum((head, x, y) in facts for x, y in pairs)
            enough = support >= LEAST_SUPPORT and support >= LEAST_CONFIDENCE * len(pairs)
            if enough and body != ((head, -1, -2),):
                expected[head, body] = support / len(pairs)
    per_head = np.bincount([head for head, _ in expected], minlength=8)
    assert 0 < per_head.max() <= MOST_PER_HEAD
    assert {(rule.head[0], rule.body): rule.weight for rule in rules} == expected
