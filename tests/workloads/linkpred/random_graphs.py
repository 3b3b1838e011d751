"""Seeded small graphs with everything a rule may have: constants, repeated variables, unsafe heads,
recursion."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from kgprof.workloads.linkpred.caps import Caps, Selection
from kgprof.workloads.linkpred.graph import FIRST_PREDICATE, Atom, KnowledgeGraph, Rule
from kgprof.workloads.linkpred.proof import Prover, State


def random_graph(
    seed: int, *, constants: int = 6, facts_per_predicate: int = 8, rules: int = 6
) -> KnowledgeGraph:
    """2 to 4 predicates, 3 to ``constants`` constants; over the seeds deep proofs, loops and dead
    ends all occur."""
    choose = random.Random(seed)
    predicates = tuple(f"p{i}" for i in range(choose.randint(2, 4)))
    names = tuple(f"c{i:02}" for i in range(choose.randint(3, constants)))
    facts = {
        (FIRST_PREDICATE + p, choose.randint(1, len(names)), choose.randint(1, len(names)))
        # The last predicate has no fact of its own: it is provable by rules only.
        for p in range(len(predicates) - 1)
        for _ in range(choose.randint(2, facts_per_predicate))
    }
    return KnowledgeGraph(
        name=f"random-{seed}",
        predicates=predicates,
        constants=names,
        train=np.array(sorted(facts), dtype=np.int64),
        valid=np.empty((0, 3), dtype=np.int64),
        test=np.empty((0, 3), dtype=np.int64),
        rules=tuple(
            _random_rule(choose, f"r{i}", len(predicates), len(names))
            for i in range(choose.randint(2, rules))
        ),
    )


def _random_rule(choose: random.Random, name: str, predicates: int, constants: int) -> Rule:
    """Mostly chains from the head's first variable to its second; now and then any term
    anywhere."""
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
    atoms = [
        (FIRST_PREDICATE + choose.randrange(predicates), *terms)
        for terms in (head_terms, *body_terms)
    ]
    head, *body = _numbered(atoms)
    return Rule(name=name, weight=1.0, head=head, body=tuple(body))


def _numbered(atoms: list[tuple[int, int, int]]) -> list[Atom]:
    """Variables renamed -1, -2, ... by first occurrence, as graph.py has them."""
    names: dict[int, int] = {}

    def name(term: int) -> int:
        return term if term > 0 else names.setdefault(term, -1 - len(names))

    return [(predicate, name(first), name(second)) for predicate, first, second in atoms]


@dataclass(frozen=True, kw_only=True)
class Derivations:
    """States to derive, each with the query that is being proved, and the game they belong to."""

    graph: KnowledgeGraph
    caps: Caps
    selection: Selection
    states: tuple[State, ...]
    own: tuple[Atom, ...]


def random_derivations(seed: int, *, states: int) -> Derivations:
    """States met on the way from random queries, and made-up ones with facts, repeats and loose
    variables in them."""
    choose = random.Random(seed)
    graph = random_graph(seed, constants=10, facts_per_predicate=40, rules=12)
    caps = Caps(
        atoms=choose.choice((1, 2, 3, 4, 6)),
        children=choose.choice((1, 4, 60, 60)),
        width=choose.choice((60, 64)),
        facts=choose.choice((1, 3, 40, 40)),
        rules=choose.choice((1, 2, 12, 12)),
    )
    selection = choose.choice(list(Selection))
    prover = Prover(graph, caps, selection)
    pairs: dict[tuple[State, Atom], None] = {}
    while len(pairs) < states:
        own = _random_atom(choose, graph, variables=0)
        if choose.random() < 0.7:
            pairs[_random_state(choose, graph, caps.atoms), own] = None
            continue
        state: State = (own,)
        for _ in range(choose.randint(1, 5)):
            pairs[state, own] = None
            state = choose.choice(prover.derive(state, own)[0])
    chosen = list(pairs)[:states]
    return Derivations(
        graph=graph,
        caps=caps,
        selection=selection,
        states=tuple(state for state, _ in chosen),
        own=tuple(own for _, own in chosen),
    )


def _random_state(choose: random.Random, graph: KnowledgeGraph, atoms: int) -> State:
    size = choose.randint(1, atoms)
    return canonical(
        [_random_atom(choose, graph, variables=3) for _ in range(size)], len(graph.constants)
    )


def _random_atom(choose: random.Random, graph: KnowledgeGraph, *, variables: int) -> Atom:
    """A train fact now and then; else anything, with one of ``variables`` variables in half of the
    places."""
    if choose.random() < 0.15:
        predicate, first, second = choose.choice(graph.train.tolist())
        return predicate, first, second
    constants = len(graph.constants)

    def term() -> int:
        if variables and choose.random() < 0.5:
            return constants + choose.randint(1, variables)
        return choose.randint(1, constants)

    return FIRST_PREDICATE + choose.randrange(len(graph.predicates)), term(), term()


def canonical(atoms: Iterable[Atom], constants: int) -> State:
    names: dict[int, int] = {}

    def name(term: int) -> int:
        return term if term <= constants else names.setdefault(term, constants + 1 + len(names))

    return tuple((predicate, name(first), name(second)) for predicate, first, second in atoms)
