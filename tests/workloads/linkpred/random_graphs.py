"""Seeded small graphs with everything a rule may have: constants, repeated variables, unsafe heads, recursion."""

from __future__ import annotations

import random

import numpy as np

from kgprof.workloads.linkpred.graph import FIRST_PREDICATE, Atom, KnowledgeGraph, Rule


def random_graph(seed: int, *, facts_per_predicate: int = 8, rules: int = 6) -> KnowledgeGraph:
    """Up to 4 predicates and 6 constants; provable atoms, deep proofs, loops and dead ends all occur over the seeds."""
    choose = random.Random(seed)
    predicates = tuple(f"p{i}" for i in range(choose.randint(2, 4)))
    constants = tuple(f"c{i}" for i in range(choose.randint(3, 6)))
    facts = {
        (FIRST_PREDICATE + p, choose.randint(1, len(constants)), choose.randint(1, len(constants)))
        # The last predicate has no fact of its own: it is provable by rules only.
        for p in range(len(predicates) - 1)
        for _ in range(choose.randint(2, facts_per_predicate))
    }
    return KnowledgeGraph(
        name=f"random-{seed}",
        predicates=predicates,
        constants=constants,
        train=np.array(sorted(facts), dtype=np.int64),
        valid=np.empty((0, 3), dtype=np.int64),
        test=np.empty((0, 3), dtype=np.int64),
        rules=tuple(
            _random_rule(choose, f"r{i}", len(predicates), len(constants)) for i in range(choose.randint(2, rules))
        ),
    )


def _random_rule(choose: random.Random, name: str, predicates: int, constants: int) -> Rule:
    """Mostly chains from the head's first variable to its second; now and then any term anywhere."""
    length = choose.choice((1, 1, 2, 2, 2, 3))
    variables = [-1, *range(-3, -2 - length, -1), -2]  # -1 and -2 are the head's
    head_terms, body_terms = [-1, -2], [[variables[i], variables[i + 1]] for i in range(length)]
    for terms in (head_terms, *body_terms):
        if choose.random() < 0.3:
            terms.reverse()
        if choose.random() < 0.15:
            terms[choose.randrange(2)] = choose.randint(1, constants)
        if choose.random() < 0.15:
            terms[choose.randrange(2)] = choose.choice((-1, -2, -3))
    atoms = [(FIRST_PREDICATE + choose.randrange(predicates), *terms) for terms in (head_terms, *body_terms)]
    head, *body = _numbered(atoms)
    return Rule(name=name, weight=1.0, head=head, body=tuple(body))


def _numbered(atoms: list[tuple[int, int, int]]) -> list[Atom]:
    """Variables renamed -1, -2, ... by first occurrence, as graph.py has them."""
    names: dict[int, int] = {}

    def name(term: int) -> int:
        return term if term > 0 else names.setdefault(term, -1 - len(names))

    return [(predicate, name(first), name(second)) for predicate, first, second in atoms]
