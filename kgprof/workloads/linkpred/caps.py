"""The sizes that bound a derivation, and the selection rule: what proof.py and unification.py must
agree on."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from kgprof.errors import UsageError
from kgprof.workloads.linkpred.graph import KnowledgeGraph, Rule

# A goal with no bound argument looks at its predicate's whole range of facts. Every state pays for
# the widest look-up, so such a range widens the default only up to here; above it the facts left
# out are counted, never hidden.
FREE_GOAL_FACTS = 1024


class Selection(StrEnum):
    """Which atom of a state is resolved."""

    MOST_BOUND = "most-bound"  # the one with most constant arguments, the leftmost of equals
    LEFTMOST = "leftmost"


class Dropped(NamedTuple):
    """What each cap left out, in the order of the engine's counters."""

    atoms: int = 0  # children with more than A atoms
    children: int = 0  # children after the first S
    facts: int = 0  # facts after the first K_f of a look-up
    rules: int = 0  # rules after the first K_r of a predicate

    def plus(self, other: Dropped) -> Dropped:
        return Dropped(*(mine + its for mine, its in zip(self, other, strict=True)))


@dataclass(frozen=True, kw_only=True)
class Caps:
    """A state has up to ``atoms`` atoms (A) and ``children`` children (S), derived from ``facts``
    facts (K_f) and ``rules`` rules (K_r). ``width`` (W >= S) is only the physical size of the
    children's tensor."""

    atoms: int
    children: int
    width: int
    facts: int
    rules: int

    def __post_init__(self) -> None:
        for name in Dropped._fields:
            cap = getattr(self, name)
            if cap < 1:
                raise UsageError(f"the cap on {name} is {cap}; it must be at least 1")
        if self.width < self.children:
            raise UsageError(
                f"the children's width is {self.width}, below the cap of {self.children} children"
            )

    @classmethod
    def from_graph(
        cls,
        graph: KnowledgeGraph,
        *,
        atoms: int | None,
        children: int | None,
        width: int | None = None,
        facts: int | None = None,
        rules: int | None = None,
        selection: str = Selection.MOST_BOUND,
        depth: int = 1,
    ) -> Caps:
        """None takes the size from the data: ``width`` is S, ``facts`` covers every look-up (see
        ``fact_fanout``), ``rules`` every rule. A state grows by the longest body less the goal with
        each of ``depth`` choices, so ``atoms`` covers every state; and a goal has no more children
        than facts and rules, so ``children`` all of them.
        """
        facts = fact_fanout(graph, selection) if facts is None else facts
        rules = _largest(rule.head[0] for rule in graph.rules) if rules is None else rules
        longest = max((len(rule.body) for rule in graph.rules), default=1)
        atoms = 1 + depth * (longest - 1) if atoms is None else atoms
        children = facts + rules if children is None else children
        width = children if width is None else width
        return cls(atoms=atoms, children=children, width=width, facts=facts, rules=rules)


def fact_fanout(graph: KnowledgeGraph, selection: str) -> int:
    """The largest number of facts that one goal of a ground query's search can match, at least 1.

    Goals come from rule bodies (the ground query itself needs membership only), so it is the
    largest (predicate, arg0) or (predicate, arg1) range of a predicate in a body. Where a goal with
    no bound argument cannot be ruled out, the largest range of such a predicate counts too, up to
    ``FREE_GOAL_FACTS``; a larger one is left to the counter.
    """
    called = {atom[0] for rule in graph.rules for atom in rule.body}
    facts: list[list[int]] = [fact for fact in graph.train.tolist() if fact[0] in called]
    bound = max(
        _largest((p, first) for p, first, _ in facts),
        _largest((p, second) for p, _, second in facts),
    )
    unbound = free_goals(graph.rules, selection)
    free = _largest(predicate for predicate, _, _ in facts if predicate in unbound)
    return max(bound, free) if free <= FREE_GOAL_FACTS else bound


def free_goals(rules: tuple[Rule, ...], selection: str) -> frozenset[int]:
    """Predicates that might be selected with both arguments unbound while a ground query is
    searched.

    None is missing; some may be there that never are. Caps and pruned facts only take atoms and
    children away, which unbinds nothing.
    """
    called = frozenset(atom[0] for rule in rules for atom in rule.body)
    if Selection(selection) is Selection.MOST_BOUND:
        anchored = all(_keeps_anchors(rule, ground=rule.head[0] not in called) for rule in rules)
        return frozenset() if anchored else called
    for rule in rules:
        in_body = {term for atom in rule.body for term in atom[1:]}
        if rule.head[0] in called and any(
            term < 0 and term not in in_body for term in rule.head[1:]
        ):
            return called
    return _leftmost_free_goals(rules, called)


def _keeps_anchors(rule: Rule, *, ground: bool) -> bool:
    """Whether resolving a goal that has a constant leaves every group of atoms linked by variables
    with a constant.

    A ground query is such a state. If every rule keeps it so, most-bound selection always finds an
    atom with a constant. ``ground``: no body asks for the head's predicate, so its goals are ground
    queries.
    """
    for positions in ((1, 2),) if ground else ((1,), (2,)):
        # Constants and the bound variables anchor: they must reach every atom of the body and the
        # head's arguments.
        anchored = {rule.head[position] for position in positions}
        atoms = list(rule.body)
        while reached := [
            atom for atom in atoms if any(term > 0 or term in anchored for term in atom[1:])
        ]:
            anchored.update(term for atom in reached for term in atom[1:])
            atoms = [atom for atom in atoms if atom not in reached]
        if atoms or not all(term > 0 or term in anchored for term in rule.head[1:]):
            return False
    return True


def _leftmost_free_goals(rules: tuple[Rule, ...], called: frozenset[int]) -> frozenset[int]:
    """Follow which arguments are bound from ground queries through the bodies, left to right. Safe
    rules only: an atom left of the selected one is proved, so its variables are bound."""
    # predicate, whether its first argument is bound, whether its second is
    calls = list(dict.fromkeys((rule.head[0], True, True) for rule in rules))
    for called_predicate, *is_bound in calls:  # which grows meanwhile
        for rule in rules:
            if rule.head[0] != called_predicate:
                continue
            bound = set(itertools.compress(rule.head[1:], is_bound))
            for predicate, first, second in rule.body:
                new = (predicate, first > 0 or first in bound, second > 0 or second in bound)
                bound |= {first, second}
                if new not in calls:
                    calls.append(new)
    free = {predicate for predicate, first, second in calls if not (first or second)}
    return called & free


def _largest(keys: Iterable[object]) -> int:
    """How often the most frequent key occurs, at least 1."""
    return max(Counter(keys).values(), default=1)
