"""A seeded family tree with recursive rules: the built-in dataset, with a known answer to every
question.

Facts (``train``) say who is whose father, mother, brother and sister, who is married, and where the
four recursive lines begin. The rules define the rest. ``test`` asks a share of the true triples of
each relation in QUESTIONS, all of which take three choices or more to prove; ``valid`` holds all
other true triples of these relations. So every filtered corruption is false, a perfect search
scores MRR 1, and what is missing is the search's doing.

Two kinds of relation are asked. In ``father_line``, ``mother_line``, ``agnate`` and ``enate`` each
choice is forced, to any depth, so any policy at all proves them: they measure the engine and the
queue. In the others the proof forks (by father or mother, husband or wife, brother or sister) and a
policy that cannot tell takes a wrong turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from kgprof.workloads.linkpred.graph import KnowledgeGraph, Triple, build
from kgprof.workloads.linkpred.rules import RuleFormat, parse_rule

T = TypeVar("T")

DEFAULT_SIZE = 600
GENERATIONS = 6
MINIMUM_SIZE = 20 * GENERATIONS  # below it the marriage rule leaves generations without couples
MAXIMUM_SIZE = 20_000
# bounds the facts that one goal can match, which a static-shape engine pays for at every step
MOST_CHILDREN = 4
MOST_SUITORS_SEEN = 8  # keeps the matching linear in the size of a generation

RULES = """
parent(X,Y) :- father(X,Y).
parent(X,Y) :- mother(X,Y).
sibling(X,Y) :- brother(X,Y).
sibling(X,Y) :- sister(X,Y).
spouse(X,Y) :- married(X,Y).
spouse(X,Y) :- married(Y,X).
father_line(X,Y) :- father(Z,Y), father_line(X,Z).
mother_line(X,Y) :- mother(Z,Y), mother_line(X,Z).
agnate(X,Y) :- father(Z,X), father(W,Y), agnate(Z,W).
enate(X,Y) :- mother(Z,X), mother(W,Y), enate(Z,W).
grandparent(X,Y) :- parent(Z,Y), parent(X,Z).
great_grandparent(X,Y) :- parent(Z,Y), grandparent(X,Z).
ancestor(X,Y) :- parent(X,Y).
ancestor(X,Y) :- parent(Z,Y), ancestor(X,Z).
uncle(X,Y) :- parent(Z,Y), brother(X,Z).
uncle(X,Y) :- aunt(Z,Y), married(X,Z).
aunt(X,Y) :- parent(Z,Y), sister(X,Z).
cousin(X,Y) :- parent(Z,X), sibling(Z,W), parent(W,Y).
great_uncle(X,Y) :- parent(Z,Y), uncle(X,Z).
parent_in_law(X,Y) :- spouse(Z,Y), parent(X,Z).
sibling_in_law(X,Y) :- spouse(Z,Y), sibling(X,Z).
co_parent_in_law(X,Y) :- parent(X,Z), spouse(Z,W), parent(Y,W).
"""


def generate(size: int, seed: int) -> KnowledgeGraph:
    """About ``size`` people and at most as many questions. The same size and seed give the same
    graph everywhere."""
    draws = Draws(seed)
    people = _people(draws, size)
    train = [fact for person in people for fact in _facts(person)]
    test: list[Triple] = []
    true: list[Triple] = []
    for relation, question in QUESTIONS.items():
        true += [(x.name, relation, y.name) for y in people for x in question.easy(y)]
        asked = [(x.name, relation, y.name) for y in people for x in question.asked(y)]
        true += asked
        test += draws.shuffled(sorted(set(asked)))[: size * question.percent // 100]
    valid = sorted(set(true) - set(test) - set(train))
    lines = RULES.strip().splitlines()
    rules = [parse_rule(line, RuleFormat.PROLOG, index=index) for index, line in enumerate(lines)]
    return build(name=f"family-tree:{size}", train=train, valid=valid, test=test, rules=rules)


class Draws:
    """Integers from the raw 64-bit stream of PCG64, the part of numpy.random that is promised never
    to change.

    Any integer is a seed; those that differ by a multiple of 2**64 are the same one.
    """

    def __init__(self, seed: int) -> None:
        self._bits = np.random.PCG64(seed % 2**64)

    def below(self, bound: int) -> int:
        """An integer from 0 to ``bound - 1``; the bias of the product is below bound / 2**64."""
        return int(self._bits.random_raw()) * bound >> 64

    def shuffled(self, items: Iterable[T]) -> list[T]:
        """A new list in random order (Fisher and Yates)."""
        shuffled = list(items)
        for last in range(len(shuffled) - 1, 0, -1):
            other = self.below(last + 1)
            shuffled[last], shuffled[other] = shuffled[other], shuffled[last]
        return shuffled


@dataclass(eq=False, kw_only=True)
class Person:
    name: str
    is_male: bool
    father: Person | None = None
    mother: Person | None = None
    spouse: Person | None = None
    children: list[Person] = field(default_factory=list)

    def parent(self, male: bool) -> Person | None:
        return self.father if male else self.mother

    @property
    def parents(self) -> tuple[Person, ...]:
        return (self.father, self.mother) if self.father and self.mother else ()

    @property
    def grandparents(self) -> tuple[Person, ...]:
        return tuple(grandparent for parent in self.parents for grandparent in parent.parents)

    @property
    def siblings(self) -> list[Person]:
        return [child for child in self.father.children if child is not self] if self.father else []

    def may_marry(self, other: Person) -> bool:
        """Neither siblings nor cousins."""
        return not {*self.parents, *self.grandparents} & {*other.parents, *other.grandparents}


def _people(draws: Draws, size: int) -> list[Person]:
    wanted = size // GENERATIONS
    people: list[Person] = []

    def born(is_male: bool, father: Person | None = None, mother: Person | None = None) -> Person:
        name = f"p{len(people):0{len(str(size))}d}"
        people.append(Person(name=name, is_male=is_male, father=father, mother=mother))
        return people[-1]

    generation = [born(index % 2 == 0) for index in range(wanted)]
    for _ in range(GENERATIONS - 1):
        couples = _couples(draws, generation)
        generation = []
        while couples and len(generation) < wanted:
            husband, wife = couples[draws.below(len(couples))]
            child = born(draws.below(2) == 0, husband, wife)
            husband.children.append(child)
            wife.children.append(child)
            generation.append(child)
            if len(wife.children) == MOST_CHILDREN:
                couples.remove((husband, wife))
    return people


def _couples(draws: Draws, generation: list[Person]) -> list[tuple[Person, Person]]:
    women = draws.shuffled(person for person in generation if not person.is_male)
    couples = []
    for man in (person for person in generation if person.is_male):
        wife = next((woman for woman in women[:MOST_SUITORS_SEEN] if man.may_marry(woman)), None)
        if wife is not None:
            women.remove(wife)
            man.spouse = wife
            wife.spouse = man
            couples.append((man, wife))
    return couples


def _facts(person: Person) -> Iterable[Triple]:
    if person.father and person.mother:
        for relation, parent in (("father", person.father), ("mother", person.mother)):
            yield parent.name, relation, person.name
            yield parent.name, f"{relation}_line", person.name
    if person.spouse and person.is_male:
        yield person.name, "married", person.spouse.name
    for sibling in person.siblings:
        for relation in ("brother" if person.is_male else "sister", "agnate", "enate"):
            yield person.name, relation, sibling.name


@dataclass(frozen=True)
class Question:
    """The true triples (x, relation, y) as the x of each y, from what the words mean and not from
    RULES.

    ``asked`` are those that take three choices or more to prove, ``easy`` the others; ``percent``
    is how many become test triples, in percent of the number of people.
    """

    percent: int
    asked: Callable[[Person], Iterable[Person]]
    easy: Callable[[Person], Iterable[Person]] = lambda _: ()


def _line(person: Person, male: bool) -> list[Person]:
    """Father, father's father and so on, or mother, mother's mother."""
    line: list[Person] = []
    while parent := (line or [person])[-1].parent(male):
        line.append(parent)
    return line


def _kin_by_line(person: Person, male: bool) -> list[Person]:
    """Those of the same generation who share the founder by fathers (or mothers) alone, without the
    siblings."""
    line = _line(person, male)
    generation = line[-1:]
    for _ in line:
        parents = (person for person in generation if person.is_male == male)
        generation = [child for parent in parents for child in parent.children]
    near = {person, *person.siblings}
    return [kin for kin in generation if kin not in near]


def _with_ancestors(people: Iterable[Person]) -> list[Person]:
    """The people themselves and all their ancestors, each once."""
    found = list(dict.fromkeys(people))
    for person in found:  # which grows meanwhile
        found += [parent for parent in person.parents if parent not in found]
    return found


def _uncles(person: Person) -> list[Person]:
    siblings = [sibling for parent in person.parents for sibling in parent.siblings]
    return [man for sibling in siblings for man in (sibling, sibling.spouse) if man and man.is_male]


QUESTIONS: Mapping[str, Question] = {
    "father_line": Question(20, lambda y: _line(y, True)[2:], lambda y: _line(y, True)[:2]),
    "mother_line": Question(20, lambda y: _line(y, False)[2:], lambda y: _line(y, False)[:2]),
    "agnate": Question(15, lambda y: _kin_by_line(y, True), lambda y: y.siblings),
    "enate": Question(10, lambda y: _kin_by_line(y, False), lambda y: y.siblings),
    "parent_in_law": Question(10, lambda y: y.spouse.parents if y.spouse else ()),
    "sibling_in_law": Question(5, lambda y: y.spouse.siblings if y.spouse else ()),
    "cousin": Question(5, lambda y: [c for p in y.parents for s in p.siblings for c in s.children]),
    "great_grandparent": Question(4, lambda y: [g for p in y.parents for g in p.grandparents]),
    "great_uncle": Question(4, lambda y: [uncle for p in y.parents for uncle in _uncles(p)]),
    "co_parent_in_law": Question(
        4,
        lambda y: [p for child in y.children if child.spouse for p in child.spouse.parents],
    ),
    "ancestor": Question(3, lambda y: _with_ancestors(y.grandparents), lambda y: y.parents),
}
