"""The engine's children, searched exhaustively, against SWI-Prolog: the least number of steps of
every query.

SWI-Prolog (Debian: swi-prolog-nox) must be there: without it these tests fail, they do not skip.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

from kgprof.workloads.linkpred.caps import Caps, Selection
from kgprof.workloads.linkpred.graph import FALSE, FIRST_PREDICATE, PAD, TRUE, Atom, KnowledgeGraph
from kgprof.workloads.linkpred.proof import PROVED, Prover
from kgprof.workloads.linkpred.unification import NO_KEY, Atoms, Engine, Resolvents
from tests.workloads.linkpred.random_graphs import random_graph

DEPTH = 6
ATOMS = (2, 3, 4, 6)
GRAPHS = 600
QUERIES_PER_GRAPH = 40
PROGRAM = Path(__file__).with_name("minimum_steps.pl")

# (graph, query) -> the least number of steps, 0 when there is no proof
Steps = dict[tuple[int, Atom], int]


@dataclass(frozen=True, kw_only=True)
class Game:
    """A graph, the rules of the search in it, and what is asked."""

    number: int
    graph: KnowledgeGraph
    selection: Selection
    atoms: int
    queries: tuple[Atom, ...]


def game(number: int) -> Game:
    graph = random_graph(number)
    choose = random.Random(number)
    terms = range(1, len(graph.constants) + 1)
    every = [
        (FIRST_PREDICATE + p, a, b)
        for p in range(len(graph.predicates))
        for a in terms
        for b in terms
    ]
    return Game(
        number=number,
        graph=graph,
        selection=choose.choice(list(Selection)),
        atoms=choose.choice(ATOMS),
        queries=tuple(choose.sample(every, min(len(every), QUERIES_PER_GRAPH))),
    )


def clauses(games: list[Game]) -> Iterator[str]:
    """Prolog text: constants are c1, c2, ..., predicates p3, p4, ..., variables V1, V2, ..."""

    def atom(atom: Atom) -> str:
        predicate, *terms = atom
        return (
            f"at(p{predicate}, "
            f"{', '.join(f'c{term}' if term > 0 else f'V{-term}' for term in terms)})"
        )

    yield ":- style_check(-discontiguous), style_check(-singleton)."
    for one in games:
        yield f"graph({one.number}, {one.selection.value!r}, {one.atoms})."
        for predicate, first, second in one.graph.train.tolist():
            yield f"fact({one.number}, p{predicate}, c{first}, c{second})."
        for rule in one.graph.rules:
            yield f"rule({one.number}, {atom(rule.head)}, [{', '.join(map(atom, rule.body))}])."
        for number, query in enumerate(one.queries):
            yield f"query({one.number}, {number}, {atom(query)})."


def prolog(games: list[Game], folder: Path) -> Steps:
    data = folder / "games.pl"
    data.write_text("\n".join(clauses(games)) + "\n")
    command = ["swipl", "-q", str(PROGRAM), "--", str(data), str(DEPTH)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert answer.stderr == ""
    queries = {one.number: one.queries for one in games}
    lines = [tuple(map(int, line.split())) for line in answer.stdout.splitlines()]
    return {(graph, queries[graph][number]): steps for graph, number, steps in lines}


@pytest.fixture(scope="module")
def games() -> list[Game]:
    return [game(number) for number in range(GRAPHS)]


@pytest.fixture(scope="module")
def truth(games: list[Game], tmp_path_factory: pytest.TempPathFactory) -> Steps:
    return prolog(games, tmp_path_factory.mktemp("prolog"))


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # small tensors: threads cost more than they give
    yield
    torch.set_num_threads(threads)


def roomy(one: Game) -> Caps:
    """Caps that cannot drop anything, but for the number of atoms, which Prolog keeps to as
    well."""
    facts, rules = len(one.graph.train), len(one.graph.rules)
    return Caps(
        atoms=one.atoms, children=facts + rules, width=facts + rules, facts=facts, rules=rules
    )


def tight(one: Game) -> Caps:
    return Caps(atoms=one.atoms, children=2, width=4, facts=2, rules=2)


def search(one: Game, engine: Engine) -> tuple[dict[Atom, int], dict[Atom, int]]:
    """Breadth first over the engine's children, all queries at once: (the least steps, dropped by
    any cap but A's)."""
    steps, dropped = dict.fromkeys(one.queries, 0), dict.fromkeys(one.queries, 0)
    frontier = [(query, engine_state(query, one.atoms)) for query in one.queries]
    seen: set[tuple[Atom, bytes]] = set()
    for step in range(1, DEPTH + 1):
        frontier = [(query, state) for query, state in frontier if steps[query] == 0]
        if not frontier:
            break
        states = torch.from_numpy(np.stack([state for _, state in frontier]))
        own = torch.tensor([query for query, _ in frontier], dtype=torch.int32)
        children, counts, lost = (table.numpy() for table in engine.derive(states, own))
        found = []
        for (query, _), rows, count, (_, *other) in zip(
            frontier, children, counts, lost, strict=True
        ):
            dropped[query] += sum(other)
            for child in rows[:count]:
                key = (query, child.tobytes())
                if child[0, 0] == TRUE:
                    steps[query] = step
                elif child[0, 0] != FALSE and key not in seen:
                    seen.add(key)
                    found.append((query, child))
        frontier = found
    return steps, dropped


def engine_state(query: Atom, atoms: int) -> npt.NDArray[np.int32]:
    return np.array([query, *[(PAD, 0, 0)] * (atoms - 1)], dtype=np.int32)


def played(games: list[Game], caps: Callable[[Game], Caps]) -> tuple[Steps, Steps]:
    """``search`` over all games."""
    steps: Steps = {}
    dropped: Steps = {}
    for one in games:
        found, lost = search(one, Engine(one.graph, caps(one), one.selection))
        steps |= {(one.number, query): least for query, least in found.items()}
        dropped |= {(one.number, query): count for query, count in lost.items()}
    return steps, dropped


def test_the_games_are_worth_playing(games: list[Game], truth: Steps) -> None:
    counts = np.bincount([*truth.values()], minlength=DEPTH + 1)

    assert len(games) >= 300
    assert {(one.selection, one.atoms) for one in games} == {
        (s, a) for s in Selection for a in ATOMS
    }
    assert len(truth) == counts.sum() >= 10_000
    assert counts[1:].sum() > 0.15 * len(truth)
    assert (counts[1:] >= 100).all()  # proofs of every length up to DEPTH


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.long)])
def test_least_steps_are_prologs(games: list[Game], truth: Steps, every: int) -> None:
    chosen = games[::every]
    numbers = {one.number for one in chosen}
    kinds = {(one.selection, one.atoms) for one in chosen}
    assert kinds == {(selection, atoms) for selection in Selection for atoms in ATOMS}

    steps, dropped = played(chosen, roomy)

    assert not any(dropped.values())
    assert steps == {query: least for query, least in truth.items() if query[0] in numbers}


def test_caps_can_only_lose_proofs_and_a_loss_is_counted(games: list[Game], truth: Steps) -> None:
    steps, dropped = played(games, tight)

    later = {query for query, least in steps.items() if least != truth[query]}
    assert len(later) > 100
    assert all(dropped[query] for query in later)
    # Zero is "no proof": with children missing a proof is found later or not at all.
    assert all(steps[query] == 0 or steps[query] > truth[query] > 0 for query in later)
    uncapped = [query for query, lost in dropped.items() if lost == 0]
    assert len(uncapped) > 5_000


def test_every_random_walk_to_true_is_a_proof_to_prolog(games: list[Game], truth: Steps) -> None:
    choose = random.Random(0)
    proved = 0
    for one in games:
        prover = Prover(one.graph, tight(one), one.selection)
        for query in one.queries:
            proof = prover.prove(query, lambda _, children: choose.randrange(len(children)), DEPTH)
            if proof.outcome == PROVED:
                proved += 1
                assert 1 <= truth[one.number, query] <= proof.steps

    assert proved > 1_000


def own_atom_unifies(engine: Engine) -> None:
    resolve = engine._resolve_with_facts
    engine._resolve_with_facts = lambda goal, rest, own: resolve(
        goal, rest, own._replace(predicate=own.predicate * 0)
    )


def own_atom_is_pruned(engine: Engine) -> None:
    prune = engine._prune
    engine._prune = lambda atoms, own: prune(atoms, own._replace(predicate=own.predicate * 0))


def no_fact_is_pruned(engine: Engine) -> None:
    engine.fact_keys = torch.full_like(engine.fact_keys, NO_KEY)


def the_other_selection(engine: Engine) -> None:
    engine.selection = (
        Selection.LEFTMOST if engine.selection is Selection.MOST_BOUND else Selection.MOST_BOUND
    )


def all_variables_are_one(engine: Engine) -> None:
    engine._canonical = lambda atoms: atoms._replace(
        terms=atoms.terms.clamp(max=engine.constants + 1)
    )


def rest_is_not_substituted(engine: Engine) -> None:
    resolve = engine._resolve_with_rules

    def faulty(goal: Atoms, rest: Atoms) -> Resolvents:
        found = resolve(goal, rest)
        rest_terms = rest.terms.expand(-1, -1, *found.valid.shape)
        body = found.atoms.terms[: -len(rest_terms)] if len(rest_terms) else found.atoms.terms
        return found._replace(atoms=found.atoms._replace(terms=torch.cat([body, rest_terms])))

    engine._resolve_with_rules = faulty


FAULTS = (
    own_atom_unifies,
    own_atom_is_pruned,
    no_fact_is_pruned,
    the_other_selection,
    all_variables_are_one,
    rest_is_not_substituted,
)


@pytest.mark.parametrize("fault", FAULTS)
def test_the_comparison_sees_a_fault(
    games: list[Game], truth: Steps, fault: Callable[[Engine], None]
) -> None:
    def differs(one: Game) -> bool:
        engine = Engine(one.graph, roomy(one), one.selection)
        fault(engine)
        found = search(one, engine)[0]
        return any(truth[one.number, query] != least for query, least in found.items())

    assert any(differs(one) for one in games[:100])  # up to the first one
