"""Rules for a graph that comes without: closed paths of length 1 and 2, in either direction,
counted on train.

A rule is ``r(X,Y) -> h(X,Y)``, ``r(Y,X) -> h(X,Y)``, or a path ``r(X,Z), s(Z,Y) -> h(X,Y)`` with
either of its atoms turned round. Its support is the number of pairs (X, Y) for which body and head
hold, its confidence the support as a share of the pairs for which the body holds. As in AMIE a body
that merely repeats the head does not count.
"""

import itertools
import operator

import numpy as np

from kgprof.workloads.linkpred.closure import (
    NOTHING,
    Budget,
    TooLargeError,
    in_sorted,
    joined,
    relations_of,
)
from kgprof.workloads.linkpred.graph import Atom, KnowledgeGraph
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
    relations = relations_of(graph, train)

    def either_way(first: int, second: int) -> list[Atom]:
        return [atom for p in relations for atom in ((p, first, second), (p, second, first))]

    bodies: list[tuple[Atom, ...]] = [(atom,) for atom in either_way(X, Y)]
    bodies += itertools.product(either_way(X, Z), either_way(Z, Y))
    # The best of a head first: head, confidence and support, both negative, length, body.
    found: list[tuple[int, float, int, int, tuple[Atom, ...]]] = []
    too_large = 0
    for body in bodies:
        atoms = [(relations[p], first, second) for p, first, second in body]
        try:
            blocks = [*joined({}, 1, atoms, (0, X, Y), constants, Budget(MOST_ROWS))]
        except TooLargeError:
            too_large += 1
            continue
        keys = np.unique(np.concatenate([NOTHING, *blocks]))
        supports = np.bincount(train[in_sorted(keys, pairs), 0])
        least = max(LEAST_SUPPORT, LEAST_CONFIDENCE * len(keys))
        for head, support in enumerate(supports.tolist()):
            if support >= least and body != ((head, X, Y),):
                found.append((head, -support / len(keys), -support, len(body), body))
    rules: list[Rule] = []
    for head, ranked in itertools.groupby(sorted(found), operator.itemgetter(0)):
        for _, confidence, _, _, body in itertools.islice(ranked, MOST_PER_HEAD):
            name = f"m{len(rules)}"
            rules.append(Rule(name=name, weight=-confidence, head=(head, X, Y), body=body))
    note = (
        f"{len(rules)} rules mined from train: closed paths of length 1 and 2, confidence from "
        f"{LEAST_CONFIDENCE}, support from {LEAST_SUPPORT}, at most {MOST_PER_HEAD} per predicate"
    )
    if too_large:
        note += f"; {too_large} paths with more than {MOST_ROWS:,} instances were not looked at"
    return tuple(rules), note
