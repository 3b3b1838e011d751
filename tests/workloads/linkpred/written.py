"""Small graphs and states written as Prolog text, so that a test reads like its example."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kgprof.workloads.linkpred.graph import FIRST_PREDICATE, Atom, KnowledgeGraph, build
from kgprof.workloads.linkpred.proof import State
from kgprof.workloads.linkpred.rules import RuleFormat, parse_fact, parse_rule

_ATOM = re.compile(r"(\w+)\((\w+), *(\w+)\)")


def graph(facts: str, rules: str = "", *, questions: str = "") -> KnowledgeGraph:
    """Clauses that end in a full stop. ``questions`` are test triples, which make names known
    without being facts."""
    return build(
        name="written",
        train=[parse_fact(f"{clause}.") for clause in _clauses(facts)],
        test=[parse_fact(f"{clause}.") for clause in _clauses(questions)],
        rules=[
            parse_rule(f"{clause}.", RuleFormat.PROLOG, index=index)
            for index, clause in enumerate(_clauses(rules))
        ],
    )


def _clauses(text: str) -> list[str]:
    return [clause.strip() for clause in text.split(".") if clause.strip()]


def state(graph: KnowledgeGraph, text: str) -> State:
    """``p(a, V1), q(V1, V2)``, where V1, V2, ... are state variables."""

    def term(name: str) -> int:
        if name in graph.constants:
            return 1 + graph.constants.index(name)
        assert name.startswith("V"), f"{name} is no constant of the graph"
        return len(graph.constants) + int(name[1:])

    return tuple(
        (FIRST_PREDICATE + graph.predicates.index(predicate), term(first), term(second))
        for predicate, first, second in _ATOM.findall(text)
    )


def atom(graph: KnowledgeGraph, text: str) -> Atom:
    (only,) = state(graph, text)
    return only


def text(graph: KnowledgeGraph, state: State) -> str:
    return ", ".join(described(graph, atom) for atom in state)


def described(graph: KnowledgeGraph, atom: Iterable[int]) -> str:
    """The atom as Prolog text, without quotes. Ids above the constants' are variables."""
    predicate, *arguments = map(int, atom)
    if predicate < FIRST_PREDICATE:
        return ("-", "true", "false")[predicate]
    names = (*graph.constants, *(f"V{number}" for number in range(1, 100)))
    terms = ", ".join(names[term - 1] for term in arguments)
    return f"{graph.predicate_text(predicate)}({terms})"
