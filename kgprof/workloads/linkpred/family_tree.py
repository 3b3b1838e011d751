"""A seeded family tree with recursive rules: the built-in dataset, with a known answer for every question.

Facts (``train``) say who is whose father, mother, brother, sister and who is married. The rules define the rest. The
questions (``test``) are every true triple of the relations in QUESTIONS, two different people each, so that filtered
corruptions are all false: a perfect search scores MRR 1, and what is missing is the search's doing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from kgprof.workloads.linkpred.graph import KnowledgeGraph, Triple, build
from kgprof.workloads.linkpred.rules import RuleFormat, RuleText, parse_rule

DEFAULT_SIZE = 400
GENERATIONS = 6
MINIMUM_SIZE = 4 * GENERATIONS
MAXIMUM_SIZE = 1_000_000
MOST_CHILDREN = 4  # bounds the facts that one goal can match, which a static-shape engine pays for at every step

RULES = """
parent(X,Y) :- father(X,Y).
parent(X,Y) :- mother(X,Y).
sibling(X,Y) :- brother(X,Y).
sibling(X,Y) :- sister(X,Y).
spouse(X,Y) :- married(X,Y).
spouse(X,Y) :- married(Y,X).
grandparent(X,Y) :- parent(Z,Y), parent(X,Z).
great_grandparent(X,Y) :- parent(Z,Y), grandparent(X,Z).
ancestor(X,Y) :- parent(X,Y).
ancestor(X,Y) :- parent(Z,Y), ancestor(X,Z).
father_line(X,Y) :- father(X,Y).
father_line(X,Y) :- father(Z,Y), father_line(X,Z).
mother_line(X,Y) :- mother(X,Y).
mother_line(X,Y) :- mother(Z,Y), mother_line(X,Z).
uncle(X,Y) :- parent(Z,Y), brother(X,Z).
uncle(X,Y) :- aunt(Z,Y), married(X,Z).
aunt(X,Y) :- parent(Z,Y), sister(X,Z).
cousin(X,Y) :- parent(Z,X), sibling(Z,W), parent(W,Y).
parent_in_law(X,Y) :- spouse(Z,Y), parent(X,Z).
sibling_in_law(X,Y) :- spouse(Z,Y), sibling(X,Z).
"""

QUESTIONS = ("great_grandparent", "ancestor", "father_line", "mother_line", "uncle", "cousin", "parent_in_law")


def rules() -> list[RuleText]:
    lines = RULES.strip().splitlines()
    return [parse_rule(line, RuleFormat.PROLOG, index=index) for index, line in enumerate(lines)]


def generate(size: int, seed: int) -> KnowledgeGraph:
    """About ``size`` people in GENERATIONS generations. The same size and seed give the same graph everywhere."""
    family = _Family(Draws(seed), size)
    return build(
        name=f"family-tree:{size}",
        train=family.facts(),
        test=[(x, relation, y) for relation in QUESTIONS for x, y in family.pairs(relation)],
        rules=rules(),
    )


class Draws:
    """Integers from the raw 64-bit stream of PCG64, the part of numpy.random that is promised never to change."""

    def __init__(self, seed: int) -> None:
        self._bits = np.random.PCG64(seed)

    def below(self, bound: int) -> int:
        """An integer from 0 to ``bound - 1``; the bias of the product is below bound / 2**64."""
        return int(self._bits.random_raw()) * bound >> 64

    def shuffled(self, items: list[Person]) -> list[Person]:
        """A new list in random order (Fisher and Yates)."""
        items = list(items)
        for last in range(len(items) - 1, 0, -1):
            other = self.below(last + 1)
            items[last], items[other] = items[other], items[last]
        return items


@dataclass(eq=False, kw_only=True)
class Person:
    name: str
    is_male: bool
    father: Person | None = None
    mother: Person | None = None
    spouse: Person | None = None
    children: list[Person] = field(default_factory=list)

    @property
    def parents(self) -> tuple[Person, ...]:
        return (self.father, self.mother) if self.father and self.mother else ()

    @property
    def grandparents(self) -> set[Person]:
        return {grandparent for parent in self.parents for grandparent in parent.parents}

    @property
    def siblings(self) -> list[Person]:
        return [child for child in self.father.children if child is not self] if self.father else []


class _Family:
    def __init__(self, draws: Draws, size: int) -> None:
        self._draws = draws
        self._digits = len(str(size))
        self.people: list[Person] = []
        wanted = max(4, size // GENERATIONS)
        generation = [self._born(is_male=index % 2 == 0) for index in range(wanted)]
        for _ in range(GENERATIONS - 1):
            generation = self._children_of(self._couples(generation), wanted)

    def _born(self, *, is_male: bool) -> Person:
        person = Person(name=f"p{len(self.people):0{self._digits}d}", is_male=is_male)
        self.people.append(person)
        return person

    def _couples(self, generation: list[Person]) -> list[Person]:
        """Marries within the generation, never two people who share a grandparent; gives the husbands."""
        women = self._draws.shuffled([person for person in generation if not person.is_male])
        husbands = []
        for man in (person for person in generation if person.is_male):
            near = {man, *man.siblings}
            wife = next((w for w in women[:8] if w not in near and not man.grandparents & w.grandparents), None)
            if wife is not None:
                women.remove(wife)
                man.spouse, wife.spouse = wife, man
                husbands.append(man)
        return husbands

    def _children_of(self, husbands: list[Person], wanted: int) -> list[Person]:
        born: list[Person] = []
        open_couples = list(husbands)
        while open_couples and len(born) < wanted:
            father = open_couples[self._draws.below(len(open_couples))]
            assert father.spouse is not None
            child = self._born(is_male=self._draws.below(2) == 0)
            child.father, child.mother = father, father.spouse
            father.children.append(child)
            father.spouse.children.append(child)
            born.append(child)
            if len(father.children) == MOST_CHILDREN:
                open_couples.remove(father)
        return born

    def facts(self) -> list[Triple]:
        found: list[Triple] = []
        for person in self.people:
            if person.father and person.mother:
                found += [(person.father.name, "father", person.name), (person.mother.name, "mother", person.name)]
            if person.spouse and person.is_male:
                found.append((person.name, "married", person.spouse.name))
            relation = "brother" if person.is_male else "sister"
            found += [(person.name, relation, sibling.name) for sibling in person.siblings]
        return found

    def pairs(self, relation: str) -> list[tuple[str, str]]:
        """Every (x, y) of ``relation``, from what the words mean and not from RULES (a test holds both together)."""
        related = _RELATED[relation]
        return [(x.name, y.name) for y in self.people for x in dict.fromkeys(related(y))]


def _ancestors(person: Person) -> list[Person]:
    return [found for parent in person.parents for found in (parent, *_ancestors(parent))]


def _line(person: Person, *, male: bool) -> list[Person]:
    parent = person.father if male else person.mother
    return [parent, *_line(parent, male=male)] if parent else []


def _parents_siblings(person: Person, *, male: bool) -> list[Person]:
    return [sibling for parent in person.parents for sibling in parent.siblings if sibling.is_male == male]


def _uncles(person: Person) -> list[Person]:
    aunts = _parents_siblings(person, male=False)
    return [*_parents_siblings(person, male=True), *(aunt.spouse for aunt in aunts if aunt.spouse)]


_RELATED: dict[str, Callable[[Person], Iterable[Person]]] = {
    "great_grandparent": lambda y: [found for parent in y.parents for found in parent.grandparents],
    "ancestor": _ancestors,
    "father_line": lambda y: _line(y, male=True),
    "mother_line": lambda y: _line(y, male=False),
    "uncle": _uncles,
    "cousin": lambda y: [c for parent in y.parents for sibling in parent.siblings for c in sibling.children],
    "parent_in_law": lambda y: y.spouse.parents if y.spouse else (),
}
