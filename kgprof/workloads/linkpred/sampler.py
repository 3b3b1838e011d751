"""Which triples are evaluated: a seeded subset of the test queries, each with seeded, filtered
corruptions.

Every choice is a comparison of 64-bit hashes of texts (seed, query, side, entity). Nothing depends
on the order of files, queries or entities, on how many queries were asked for, or on the version of
a random generator.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from kgprof.errors import UsageError
from kgprof.workloads.linkpred.arrays import Ints
from kgprof.workloads.linkpred.graph import KnowledgeGraph

Hashes = npt.NDArray[np.uint64]

HEAD = 0
TAIL = 1
SIDES = ("head", "tail")
NO_CANDIDATE = -1
MOST_SLOTS = 50_000_000  # 32 bytes each, with its triple: 1.6 GB, as there is no chunking yet


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidates:
    """Queries with their corruptions. A triple that corrupts two queries is two candidates, each
    counted and searched.

    ``slots`` says where each candidate belongs: [query, side, column] -> row of ``triples``. Column
    0 is the query itself, the others its corruptions in order of their hashes; -1 where fewer exist
    than the widest row holds.
    """

    queries: Ints  # [Q, 3], (predicate, arg0, arg1), sorted
    triples: Ints  # [N, 3]: valid candidates only, in the order of ``slots``
    slots: Ints  # [Q, 2, 1 + K]: side 0 has the head corrupted, side 1 the tail
    notes: tuple[str, ...] = ()

    @property
    def invalid(self) -> int:
        """Slots that hold no candidate."""
        return int((self.slots == NO_CANDIDATE).sum())


def sample(
    graph: KnowledgeGraph, *, queries: int | None, corruptions: int | None, seed: int
) -> Candidates:
    """``queries`` of the test triples (None or 0: all), each with ``corruptions`` (None: all) on
    either side.

    Raises UsageError when there is nothing to evaluate, or more than fits in memory.
    """
    sampling = Sampling(graph, queries=queries, corruptions=corruptions, seed=seed)
    slots = sampling.counts.size * (1 + sampling.width)
    if slots > MOST_SLOTS:
        wanted = (
            f"{slots:,} candidates, more than the {MOST_SLOTS:,} that are held in memory at once"
        )
        raise UsageError(
            wanted,
            hint="lower --queries or --corruptions; kgprof evaluate goes through them in chunks",
        )
    return sampling.candidates(0, len(sampling.queries))


class Sampling:
    """The queries, how many corruptions each has, and the candidates of any range of queries,
    whatever the range.

    Corruptions are drawn without replacement from all entities, of the replaced one's domain where
    the graph has domains, less those that make a triple of train, valid or test.
    """

    def __init__(
        self, graph: KnowledgeGraph, *, queries: int | None, corruptions: int | None, seed: int
    ) -> None:
        self.queries, self.notes = _choose_queries(graph, queries, seed)
        self._graph, self._seed, self._pool = graph, seed, _Pool(graph)
        sides = [
            self._pool.available(query, side) for query in self.queries for side in (HEAD, TAIL)
        ]
        available = np.reshape(sides, (-1, 2))
        self.width = int(available.max()) if corruptions is None else corruptions
        self.counts: Ints = np.minimum(available, self.width)  # [Q, 2]
        short = int((self.counts < (corruptions or 0)).sum())
        if short:
            few = (
                f"{short} of {self.counts.size} query sides have fewer than {corruptions} "
                "corruptions"
            )
            self.notes += (f"{few}, the fewest {self.counts.min()}",)

    def candidates(self, start: int, stop: int) -> Candidates:
        """Those of the queries from ``start`` to ``stop``, numbered from 0."""
        chosen = self.queries[start:stop]
        counts = self.counts[start:stop]
        # Consecutive candidate numbers for column 0 and the first `counts` columns after it, -1
        # elsewhere.
        filled = np.arange(1 + self.width) <= counts[:, :, None]
        slots = np.where(filled, filled.ravel().cumsum().reshape(filled.shape) - 1, NO_CANDIDATE)
        triples = np.repeat(np.repeat(chosen, 2, axis=0), (counts + 1).ravel(), axis=0)
        for query, row in zip(chosen, slots, strict=True):
            for side in (HEAD, TAIL):
                taken = row[side, 1:][row[side, 1:] != NO_CANDIDATE]
                key = _hash(f"{SIDES[side]} corrupted", self._seed, *_words(self._graph, query))
                triples[taken, 1 + side] = self._pool.draw(query, side, len(taken), key)
        return Candidates(queries=chosen, triples=triples, slots=slots, notes=self.notes)


def _choose_queries(
    graph: KnowledgeGraph, wanted: int | None, seed: int
) -> tuple[Ints, tuple[str, ...]]:
    test = graph.test
    if not len(test):
        raise UsageError(f"{graph.name} has no test triple, so there is nothing to evaluate")
    if not wanted or wanted == len(test):
        return test, ()
    if wanted > len(test):
        return test, (f"{wanted} queries requested, but test has {len(test)}: all are evaluated",)
    hashes = np.array(
        [_hash("query", seed, *_words(graph, query)) for query in test], dtype=np.uint64
    )
    return test[np.sort(_smallest(hashes, wanted))], ()


class _Pool:
    """What may stand in for a head or a tail, and what must not because the triple is known."""

    def __init__(self, graph: KnowledgeGraph) -> None:
        known = np.unique(np.concatenate([graph.train, graph.valid, graph.test]), axis=0)
        self._entities: Ints = np.unique(known[:, 1:])
        texts = [graph.constants[entity - 1] for entity in self._entities]
        self._hashes: Hashes = np.array([_hash("entity", text) for text in texts], dtype=np.uint64)
        self._stride = len(graph.constants) + 1
        # One domain for all where the graph has none.
        domains = np.zeros(self._stride, dtype=np.int64) if graph.domains is None else graph.domains
        self._domain_of, self._domains = domains, domains[self._entities]
        self._domain_sizes = np.bincount(self._domains, minlength=int(domains.max()) + 1)
        # By side: sorted keys of predicate and kept argument, and the argument in the corrupted
        # place of each.
        self._known: list[tuple[Ints, Ints]] = []
        for side in (HEAD, TAIL):
            keys = known[:, 0] * self._stride + known[:, 2 - side]
            order = np.argsort(keys, kind="stable")
            self._known.append((keys[order], known[order, 1 + side]))

    def _excluded(self, query: Ints, side: int) -> Ints:
        keys, values = self._known[side]
        key = query[0] * self._stride + query[2 - side]
        found: Ints = values[
            np.searchsorted(keys, key, side="left") : np.searchsorted(keys, key, side="right")
        ]
        return found

    def available(self, query: Ints, side: int) -> int:
        domain = self._domain_of[query[1 + side]]
        excluded = self._excluded(query, side)
        return int(self._domain_sizes[domain] - (self._domain_of[excluded] == domain).sum())

    def draw(self, query: Ints, side: int, count: int, key: int) -> Ints:
        """``count`` entities, those whose hash under ``key`` is smallest, smallest first."""
        allowed = self._domains == self._domain_of[query[1 + side]]
        allowed[np.searchsorted(self._entities, self._excluded(query, side))] = False
        entities = self._entities[allowed]
        drawn: Ints = entities[_smallest(_mix(self._hashes[allowed] ^ np.uint64(key)), count)]
        return drawn


def _smallest(hashes: Hashes, count: int) -> npt.NDArray[np.intp]:
    """Positions of the ``count`` smallest hashes, smallest first; of equal ones the first
    position."""
    if count == 0:
        return np.empty(0, dtype=np.intp)
    within = np.flatnonzero(hashes <= np.partition(hashes, count - 1)[count - 1])
    return within[np.argsort(hashes[within], kind="stable")][:count]


def _words(graph: KnowledgeGraph, triple: Ints) -> Iterator[str]:
    predicate, head, tail = (int(number) for number in triple)
    yield graph.predicate_text(predicate)
    yield graph.constant_text(head)
    yield graph.constant_text(tail)


def _hash(*parts: str | int) -> int:
    """64 bits of BLAKE2b over the parts' texts. No name holds a line feed, so the parts stay
    apart."""
    text = "\n".join(map(str, parts))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def _mix(values: Hashes) -> Hashes:
    """The finaliser of splitmix64 (Steele, Lea and Flood 2014): a bijection of 64-bit words;
    products wrap."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
