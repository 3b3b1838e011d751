"""Rules for a graph that comes without: closed paths of length 1 and 2, in either direction,
counted on train.

A rule is ``r(X,Y) -> h(X,Y)``, ``r(Y,X) -> h(X,Y)``, or a path ``r(X,Z), s(Z,Y) -> h(X,Y)`` with
either of its atoms turned round. Its support is the number of pairs (X, Y) for which body and head
hold, its confidence the support as a share of the pairs for which the body holds. As in AMIE a body
that merely repeats the head does not count.
"""

import itertools
from collections import Counter

import numpy as np

from kgprof.workloads.linkpred.closure import (
    NOTHING,
    Budget,
    Relation,
    TooLargeError,
    in_sorted,
    joined,
)
from kgprof.workloads.linkpred.graph import FIRST_PREDICATE, Atom, KnowledgeGraph
from kgprof.workloads.linkpred.rules import Rule

LEAST_CONFIDENCE = 0.5
LEAST_SUPPORT = 5
MOST_ROWS = 20_000_000  # instances of a path
MOST_PER_HEAD = 16  # the best of each head predicate, by confidence, then support

X, Y, Z = -1, -2, -3


def mined(graph: KnowledgeGraph) -> tuple[tuple[Rule, ...], str]:
    """The rules, best first within a head, weighed by their confidence; and a note on how they came
    about."""
    constants = np.arange(1, len(graph.constants) + 1, dtype=np.int64)
    stride = len(constants) + 1
    train = graph.train
    pairs = train[:, 1] * stride + train[:, 2]
    predicates = range(FIRST_PREDICATE, FIRST_PREDICATE + len(graph.predicates))
    relations = {p: Relation.of(np.sort(pairs[train[:, 0] == p]), stride) for p in predicates}
    steps = [*itertools.product(predicates, (False, True))]
    bodies: list[tuple[Atom, ...]] = [(_atom(p, X, Y, back),) for p, back in steps]
    for (p, back), (q, q_back) in itertools.product(steps, steps):
        bodies.append((_atom(p, X, Z, back), _atom(q, Z, Y, q_back)))
    found: list[tuple[int, float, int, tuple[Atom, ...]]] = []
    too_large = 0
    for body in bodies:
        atoms = [(relations[p], first, second) for p, first, second in body]
        try:
            blocks = [*joined({}, 1, atoms, (0, X, Y), constants, Budget(MOST_ROWS))]
        except TooLargeError:
            too_large += 1
            continue
        keys = np.unique(np.concatenate([NOTHING, *blocks]))
        support = np.bincount(train[in_sorted(keys, pairs), 0], minlength=predicates.stop)
        least = max(LEAST_SUPPORT, LEAST_CONFIDENCE * len(keys))
        for head, pairs_held in enumerate(support.tolist()):
            if pairs_held >= least and body != ((head, X, Y),):
                found.append((head, pairs_held / len(keys), pairs_held, body))
    found.sort(key=lambda rule: (rule[0], -rule[1], -rule[2], len(rule[3]), rule[3]))
    rules: list[Rule] = []
    per_head = Counter[int]()
    for head, confidence, _, body in found:
        per_head[head] += 1
        if per_head[head] <= MOST_PER_HEAD:
            rules.append(
                Rule(name=f"m{len(rules)}", weight=confidence, head=(head, X, Y), body=body)
            )
    note = (
        f"{len(rules)} rules mined from train: closed paths of length 1 and 2, confidence from "
        f"{LEAST_CONFIDENCE}, support from {LEAST_SUPPORT}, at most {MOST_PER_HEAD} per predicate"
    )
    if too_large:
        note += f"; {too_large} paths with more than {MOST_ROWS:,} instances were not looked at"
    return tuple(rules), note


def _atom(predicate: int, first: int, second: int, back: bool) -> Atom:
    return (predicate, second, first) if back else (predicate, first, second)
