"""Which triples the rules prove at all, to any depth: the least fixpoint of the rules over the
facts.

Each predicate is a sparse matrix over the constants, kept as sorted integer keys in both orders; a
rule's body is a join of them, a round derives only from what the last round added (semi-naive
evaluation), and the rounds end when nothing is new. A head variable that the body does not bind
stands for every constant, as in a proof.

The query's own triple is no fact while it is being proved. That matters for candidates that are
facts: such a one is provable when it is in the fixpoint of the other facts.

Some rule files prove nearly everything (WN18RR's 42 rules make chains of chains): beyond
``MOST_TRIPLES``, or after ``MOST_ROWS`` of joins, it stops. What was found by then is provable; of
everything else nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kgprof.workloads.linkpred.arrays import Bools, Ints
from kgprof.workloads.linkpred.graph import FIRST_PREDICATE, KnowledgeGraph, Rule

BLOCK = 1 << 22  # rows of a join that are held at once
# of the fixpoint; 16 bytes each, and as much again while a round is merged
MOST_TRIPLES = 20_000_000
MOST_ROWS = 30_000_000  # of all joins of a fixpoint: some ten seconds
# for candidates that are facts themselves, each of which may need one of its own
MOST_FIXPOINTS = 50
NOTHING: Ints = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Relation:
    """The pairs of one predicate as sorted keys first * stride + second, and second * stride +
    first."""

    forward: Ints
    backward: Ints
    stride: int

    @classmethod
    def of(cls, keys: Ints, stride: int) -> Relation:
        return cls(keys, np.sort(keys % stride * stride + keys // stride), stride)

    def holds(self, keys: Ints) -> Bools:
        return in_sorted(self.forward, keys)


class TooLargeError(Exception):
    """More rows or triples than a fixpoint may take."""


@dataclass
class Budget:
    rows: int

    def spend(self, rows: int) -> None:
        self.rows -= rows
        if self.rows < 0:
            raise TooLargeError


Bound = Mapping[int, Ints]  # the values of each variable so far, one row a binding
Body = Sequence[tuple[Relation, int, int]]


@dataclass(frozen=True, eq=False)
class Closure:
    relations: Mapping[int, Relation]
    stride: int
    rounds: int
    complete: bool  # False: it grew too large, and what is missing may yet be provable
    seconds: float = 0.0  # that it took

    @property
    def size(self) -> int:
        return sum(len(relation.forward) for relation in self.relations.values())

    def holds(self, triples: Ints) -> Bools:
        """bool [N] of int64 [N, 3]."""
        held = np.zeros(len(triples), dtype=np.bool_)
        for predicate, relation in self.relations.items():
            rows = np.flatnonzero(triples[:, 0] == predicate)
            held[rows] = relation.holds(triples[rows, 1] * self.stride + triples[rows, 2])
        return held


def relations_of(graph: KnowledgeGraph, facts: Ints) -> dict[int, Relation]:
    """The relation of each predicate, in the order of their ids."""
    stride = len(graph.constants) + 1
    keys = facts[:, 1] * stride + facts[:, 2]
    predicates = range(FIRST_PREDICATE, FIRST_PREDICATE + len(graph.predicates))
    return {p: Relation.of(np.unique(keys[facts[:, 0] == p]), stride) for p in predicates}


def closure(graph: KnowledgeGraph, facts: Ints | None = None) -> Closure:
    """The fixpoint over ``facts`` (int64 [n, 3]; the graph's train triples)."""
    facts = graph.train if facts is None else facts
    stride = len(graph.constants) + 1
    constants = np.arange(1, stride, dtype=np.int64)
    added = relations_of(graph, facts)
    total = dict(added)
    rounds = 0
    complete = True
    budget = Budget(MOST_ROWS)
    while complete and any(len(relation.forward) for relation in added.values()):
        found = {predicate: [NOTHING] for predicate in total}
        room = Budget(MOST_TRIPLES - sum(len(relation.forward) for relation in total.values()))
        try:
            for rule in graph.rules:
                for keys in _consequences(
                    rule, total, added, constants, budget, first_round=not rounds
                ):
                    keys = np.unique(keys)
                    keys = keys[~total[rule.head[0]].holds(keys)]
                    found[rule.head[0]].append(keys)
                    _take(room, found, len(keys))
            rounds += 1
        except TooLargeError:
            complete = False
        for predicate, parts in found.items():
            fresh = np.unique(np.concatenate(parts))
            added[predicate] = Relation.of(fresh, stride)
            if len(fresh):
                merged = np.concatenate([total[predicate].forward, fresh])
                merged.sort(kind="stable")  # two sorted runs: one merge
                total[predicate] = Relation.of(merged, stride)
    return Closure(total, stride, rounds, complete)


def _take(room: Budget, found: dict[int, list[Ints]], number: int) -> None:
    """Room for ``number`` more. Where it runs out, what was found twice is put together first."""
    if room.rows < number:
        held = sum(len(keys) for parts in found.values() for keys in parts)
        for predicate, parts in found.items():
            found[predicate] = [np.unique(np.concatenate(parts))]
        room.rows += held - sum(len(keys) for (keys,) in found.values())
    room.spend(number)


def provable(graph: KnowledgeGraph, whole: Closure, triples: Ints) -> tuple[Bools, Bools]:
    """bool [N] each: what has a proof to some depth, and where that is known."""
    held = whole.holds(triples)
    known = held | whole.complete
    stride = whole.stride

    def packed(rows: Ints) -> Ints:
        return (rows[:, 0] * stride + rows[:, 1]) * stride + rows[:, 2]

    own = np.flatnonzero(in_sorted(np.sort(packed(graph.train)), packed(triples)))
    if not len(own):
        return held, known
    facts = np.unique(triples[own], axis=0)
    others = graph.train[~in_sorted(np.sort(packed(facts)), packed(graph.train))]
    # what is provable without any of them is provable without itself
    answers = closure(graph, others).holds(facts)
    decided = answers.copy()
    for index in np.flatnonzero(~answers)[:MOST_FIXPOINTS]:
        alone = closure(graph, graph.train[(graph.train != facts[index]).any(axis=1)])
        answers[index] = alone.holds(facts[index : index + 1])[0]
        decided[index] = answers[index] or alone.complete
    place = np.searchsorted(packed(facts), packed(triples[own]))
    held[own], known[own] = answers[place], decided[place]
    return held, known


def _consequences(
    rule: Rule,
    total: Mapping[int, Relation],
    added: Mapping[int, Relation],
    constants: Ints,
    budget: Budget,
    *,
    first_round: bool,
) -> Iterator[Ints]:
    """Keys of the heads that need something of ``added`` in the body; in the first round everything
    is added."""
    for place, (predicate, *_) in enumerate(rule.body):
        if (first_round and place) or not len(added[predicate].forward):
            continue
        # The added atom comes first: it is the smallest.
        order = [place, *(other for other in range(len(rule.body)) if other != place)]
        body = [
            ((added if at == place else total)[rule.body[at][0]], *rule.body[at][1:])
            for at in order
        ]
        yield from joined({}, 1, body, rule.head, constants, budget)


def joined(
    bound: Bound, rows: int, body: Body, head: tuple[int, int, int], constants: Ints, budget: Budget
) -> Iterator[Ints]:
    """Join the atoms of ``body`` one after the other, blocks of rows at a time, down to the keys of
    the head."""
    if not rows:
        return
    stride = len(constants) + 1
    if not body:
        free = [term for term in head[1:] if term < 0 and term not in bound]
        if free:  # a variable of an unsafe head is every constant
            for wider, values in _crossed(bound, rows, constants):
                wider[free[0]] = values
                yield from joined(wider, len(values), body, head, constants, budget)
            return
        first, second = (bound[term] if term < 0 else np.full(rows, term) for term in head[1:])
        yield first * stride + second
        return
    # The atom with most known arguments, the earliest of equals.
    best = max(
        range(len(body)), key=lambda at: sum(term > 0 or term in bound for term in body[at][1:])
    )
    relation, *terms = body[best]
    rest = [*body[:best], *body[best + 1 :]]
    wanted = {term for _, *others in (*rest, head) for term in others}
    for extended, size in _extended(bound, rows, relation, terms[0], terms[1]):
        budget.spend(size)
        kept: Bound = {term: values for term, values in extended.items() if term in wanted}
        if len(kept) < len(extended) and size:
            kept, size = _different(kept, size, stride)
        yield from joined(kept, size, rest, head, constants, budget)


def _extended(
    bound: Bound, rows: int, relation: Relation, first: int, second: int
) -> Iterator[tuple[Bound, int]]:
    """The bindings that hold for one more atom."""
    stride = relation.stride
    left = _values(bound, rows, first)
    right = _values(bound, rows, second)
    if left is not None and right is not None:
        yield _at(bound, np.flatnonzero(relation.holds(left * stride + right)))
        return
    if left is None and right is None:
        keys = relation.forward
        if first == second:
            keys = keys[keys // stride == keys % stride]
        for wider, pairs in _crossed(bound, rows, keys):
            yield {**wider, first: pairs // stride, second: pairs % stride}, len(pairs)
        return
    keys, known, new = relation.forward, left, second
    if left is None:
        keys, known, new = relation.backward, right, first
    assert known is not None
    low = np.searchsorted(keys, known * stride)
    high = np.searchsorted(keys, (known + 1) * stride)
    ends = np.cumsum(high - low)
    start = 0
    while start < rows:
        done = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, done + BLOCK, side="right")))
        counts = (high - low)[start:stop]
        picked = np.repeat(np.arange(start, stop), counts)
        places = np.arange(len(picked)) + np.repeat(
            low[start:stop] - (np.cumsum(counts) - counts), counts
        )
        yield {**_at(bound, picked)[0], new: keys[places] % stride}, len(picked)
        start = stop


def _values(bound: Bound, rows: int, term: int) -> Ints | None:
    """What an argument is in each row; None where it is not bound."""
    return np.full(rows, term) if term > 0 else bound.get(term)


def _crossed(bound: Bound, rows: int, values: Ints) -> Iterator[tuple[dict[int, Ints], Ints]]:
    """Each binding with each value, blocks of rows at a time."""
    for block in np.array_split(np.arange(rows), max(1, rows * len(values) // BLOCK)):
        wider = {term: np.repeat(column[block], len(values)) for term, column in bound.items()}
        yield wider, np.tile(values, len(block))


def _at(bound: Bound, rows: npt.NDArray[np.intp]) -> tuple[Bound, int]:
    return {term: values[rows] for term, values in bound.items()}, len(rows)


def _different(bound: Bound, size: int, stride: int) -> tuple[Bound, int]:
    """Each binding once, where its values fit into one integer; twice costs time and changes
    nothing."""
    if not bound:
        return bound, 1
    if stride ** len(bound) >= 2**63:
        return bound, size
    packed = np.zeros(size, dtype=np.int64)
    for values in bound.values():
        packed = packed * stride + values
    packed = np.unique(packed)
    size = len(packed)
    unpacked: dict[int, Ints] = {}
    for term in reversed([*bound]):
        unpacked[term], packed = packed % stride, packed // stride
    return unpacked, size


def in_sorted(keys: Ints, values: Ints) -> Bools:
    if not len(keys):
        return np.zeros(len(values), dtype=np.bool_)
    place = np.minimum(np.searchsorted(keys, values), len(keys) - 1)
    return np.asarray(keys[place] == values)
