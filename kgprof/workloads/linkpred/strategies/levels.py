"""All candidates at once, depth by depth: each distinct state is derived once and each candidate
follows a table.

A candidate's next state depends on its state alone, unless its own atom is a fact: only then does
it matter whose proof this is, and only then does the own atom belong to the key. So candidates that
meet share all that follows, at whatever depth they meet, and a loop costs nothing after its first
round. What stays with a candidate is where it is, and whether a cap dropped a child on its way
there.

Keys are the engine's packed words. Sorting by a hash brings equal keys together, and all words are
compared. Where two different keys have one hash, everything begins again with keys sorted by all
their words: no collision changes results.

Only what is real is worked on: resolvents that unify (a quarter of the places on family) are
gathered before they are pruned, and children (a tenth) before they are encoded. A parent's encoding
is the one it got as a child.

A first look encodes the children with float16 products (first_look.py), and float32 only those that
can still win. An encoding of the first look differs from float32's by at most a share d of its
length (``FIRST_LOOKS``); so by the Cauchy-Schwarz inequality a logit differs by at most d / (1 - d)
|c| |p| times the policy's scale, and a child whose logit is further below another's loses in
float32 too. Each child that float32 encodes also measures d: if one is larger than stated,
everything begins again without a first look. On CUDA, compiled, kernels do the level
(level_table.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from kgprof import model as m
from kgprof.workloads.linkpred.caps import Dropped
from kgprof.workloads.linkpred.evaluator import Found
from kgprof.workloads.linkpred.first_look import FirstLook, apart
from kgprof.workloads.linkpred.graph import FALSE, TRUE
from kgprof.workloads.linkpred.level_table import (
    MIXER,
    SECOND_LOOK,
    LevelTable,
    Table,
    UncompiledError,
    Walk,
    unfit,
)
from kgprof.workloads.linkpred.policy import ROUNDING, Choice, choose_listed
from kgprof.workloads.linkpred.proof import UNFINISHED
from kgprof.workloads.linkpred.queue import load
from kgprof.workloads.linkpred.slots import Problem, classify

DERIVED_ROWS = {"cpu": 512, "cuda": 32768}  # states per engine call; bounds its memory
ENCODED_ROWS = {"cpu": 4096, "cuda": 262144}  # children per call of the policy
# The largest difference of an encoding over its length. With seeded weights, 8 layers of 256, it
# was 0.0006, and 6 % more children than parents could still win.
FIRST_LOOKS = {"none": 0.0, "float16": 2.0**-9}


class Frontier(NamedTuple):
    """States that are in the table and have no successor yet."""

    ids: Tensor  # int64 [F], their rows of the table
    keys: Tensor  # int64 [F, words + 1]
    states: Tensor  # int32 [F, A, 3]
    own: Tensor  # int32 [F, 3], zero unless the own atom is a fact
    encoded: Tensor  # [F, hidden]


class Successors(NamedTuple):
    """The chosen child of each state."""

    keys: Tensor
    states: Tensor
    encoded: Tensor
    lost: Tensor  # as in Table, by deriving it


Call = Callable[..., Any]


class Calls(NamedTuple):
    """What torch does of a level, compiled where the mode asks for it."""

    unify: Call
    close: Call
    different: Call
    taken: Call
    encode: Call
    choose: Call
    contenders: Call
    apart: Call
    settle: Call
    follow: Call


def calls_of(problem: Problem, mode: str, backend: str, part: str) -> Calls:
    engine = problem.engine
    parts: dict[str, tuple[Call, ...]] = {
        "engine": (engine.unify, engine.close, engine.different, engine.taken),
        "policy": (problem.policy.encode, choose, contenders, apart),
        "step": (settled, follow),
    }
    calls: list[Call] = []
    for name, functions in parts.items():
        if mode != m.EAGER and part in ("step", name):
            # How many states there are is known only when the level is reached, so the sizes are
            # dynamic.
            calls += [torch.compile(call, dynamic=True, backend=backend) for call in functions]
        else:
            calls += functions
    return Calls(*calls)


class Levels:
    """A Search (evaluator.py). A step is one level: every candidate that is not finished makes one
    choice."""

    name = "levels"
    summary = "Depth by depth, each distinct state of all candidates is derived and scored once."
    modes = (m.EAGER, "default")

    def __init__(
        self,
        problem: Problem,
        mode: str,
        backend: str = "inductor",
        part: str = "step",
        first_look: str = "none",
    ) -> None:
        self.problem = problem
        self.compiling = (mode, backend, part)
        size, device = problem.size, problem.goals.device
        self.derived_rows = DERIVED_ROWS.get(device.type, 512)
        self.encoded_rows = ENCODED_ROWS.get(device.type, 4096)
        self.differs = FIRST_LOOKS[first_look]  # 0: there is no first look
        self.apart = torch.zeros((), device=device)  # d, as measured in this evaluation
        self.second_apart = torch.zeros_like(self.apart)  # the same of a second look
        self.differed = 0.0  # as measured
        self.by_hash = True
        types = (torch.int8, torch.int32, torch.int64, torch.bool, torch.bool)
        candidates = [torch.empty(size, dtype=dtype, device=device) for dtype in types]
        tally = torch.empty(5, dtype=torch.int64, device=device)
        self.walk = Walk(*(*candidates, tally))
        self.kernels: LevelTable | None = None
        self.why_not = ""
        if self.differs and mode != m.EAGER and part == "step":
            self.why_not = unfit(problem)
            if not self.why_not:
                self.kernels = LevelTable(problem, self.differs, self.apart, self.second_apart)
        self.restart()

    @cached_property
    def by_torch(self) -> Calls:
        """Made when torch is to do a level: kernels need none of it, and importing Dynamo and
        Inductor takes 2 seconds."""
        return calls_of(self.problem, *self.compiling)

    @cached_property
    def glance(self) -> FirstLook:
        return FirstLook(self.problem.policy)

    def restart(self) -> None:
        problem = self.problem
        engine = problem.engine
        goals = problem.goals[:-1]
        device = goals.device
        self.level, self.done = 0, problem.size == 0
        self.children, self.again = 0, 0  # of first looks: all, and those that float32 encoded
        for buffer in (*self.walk, self.apart, self.second_apart):
            buffer.zero_()
        self.walk.outcome.fill_(UNFINISHED)
        self.walk.live.fill_(True)
        base = engine.constants + 1
        own_key = (goals[:, 0].long() * base + goals[:, 1]) * base + goals[:, 2]
        is_fact = engine.fact_keys[torch.searchsorted(engine.fact_keys, own_key)] == own_key
        states = load(problem.goals, torch.arange(problem.size, device=device), engine.caps.atoms)
        keys = torch.cat([engine.pack(states)[..., 0], torch.where(is_fact, own_key, 0)[None]]).T
        ends, at = goals[:, 0], self.walk.at
        if self.kernels is not None and self._by_kernels(self.kernels.begin, keys, ends, at) >= 0:
            return
        none = torch.empty(0, dtype=torch.int64, device=device)
        table = Table(keys[:0], none, none.int(), none.new_empty(0, 5))
        first = Successors(keys, states, none, table.lost)
        self.table, ids, new, self.collisions = settled(table, none, first, self.by_hash)
        self.walk.at.copy_(ids)
        new = new.nonzero()[:, 0]
        own = torch.where(is_fact.unsqueeze(1), goals, 0)[new]
        encoded = self._in_passes(self.by_torch.encode, states[new])
        self.frontier = Frontier(ids[new], keys[new], states[new], own, encoded)

    def advance(self) -> None:
        if self.done:
            return
        self.level += 1
        left = self._level()
        if left < 0:
            self.restart()
            return
        # A candidate stands at every state of the frontier.
        left = left or int(self.walk.live.any())
        self.done = self.level == self.problem.depth or not left
        if self.done and self._misled():
            self.restart()

    def _level(self) -> int:
        """How many states the next frontier has; -1 where all begins again, with more room or by
        torch."""
        depth = self.problem.depth
        if self.kernels is not None:
            return self._by_kernels(self.kernels.level, self.walk, depth)
        if not len(self.frontier.ids):
            self.by_torch.follow(self.walk, self.table, depth)
            return 0
        reached, new = self._expand()
        self.by_torch.follow(self.walk, self.table, depth)
        # The host waits for the device here, where it has given it the whole level.
        new = new.nonzero()[:, 0]
        self.frontier = Frontier(*(each[new] for each in reached))
        return len(self.frontier.ids)

    def _by_kernels(self, call: Callable[..., int], *given: object) -> int:
        try:
            return call(*given)
        except UncompiledError as error:
            self.kernels, self.why_not = None, str(error)
            return -1

    def _misled(self) -> bool:
        """Whether something that was taken for granted did not hold. It is not taken for granted
        any more."""
        differed = float(self.apart)
        self.differed = max(self.differed, differed)
        collisions = False
        if self.kernels is None:
            collisions = bool(self.collisions)
        else:
            # The kernels' second look stands for float32 where a first look is measured.
            differed += 2 * SECOND_LOOK
        # all 0 without a look
        further = differed > self.differs or float(self.second_apart) > SECOND_LOOK
        if further:
            self.differs = 0.0
            self.kernels = None
        self.by_hash = self.by_hash and not collisions
        return further or collisions

    def found(self) -> Found:
        *dropped, nans = self.walk.tally.tolist()
        steps = torch.where(self.walk.outcome == UNFINISHED, 0, self.walk.depths)
        return Found(
            outcome=self.walk.outcome.cpu().numpy().copy(),
            steps=steps.cpu().numpy().copy(),
            dropped=Dropped(*dropped),
            nans=nans,
            settings=tuple(self._looks()),
        )

    def _looks(self) -> Iterator[tuple[str, str]]:
        if not (self.differs or self.differed):
            return
        if self.kernels is not None:
            children, kept, exact = self.kernels.looked_at
            counts = f"{kept:,} of {children:,} children encoded again, {exact:,} states in float32"
        elif self.differs:
            counts = f"{self.again:,} of {self.children:,} children encoded in float32"
        else:
            counts = "given up"
        length = f"encodings differed by at most {self.differed:.2g} of their length"
        yield "first look", f"{counts}; {length}"
        if self.why_not:
            yield "kernels", f"not used: {self.why_not}"

    def buffers(self) -> Mapping[str, Tensor]:
        """What each candidate has. The table is not among them: it grows from level to level."""
        return self.walk._asdict()

    def _expand(self) -> tuple[Frontier, Tensor]:
        """Give every state of the frontier its successor. Answers those, and which were never
        reached before."""
        frontier = self.frontier
        parts = zip(*(torch.split(each, self.derived_rows) for each in frontier), strict=True)
        chosen = zip(*(self._successors(Frontier(*part)) for part in parts), strict=True)
        successors = Successors(*map(joined, chosen))
        self.table, ids, new, collisions = self.by_torch.settle(
            self.table, frontier.ids, successors, self.by_hash
        )
        self.collisions = self.collisions + collisions
        keys, states, encoded, _ = successors
        return Frontier(ids, keys, states, frontier.own, encoded), new

    def _successors(self, part: Frontier) -> Successors:
        policy, count, calls = self.problem.policy, len(part.ids), self.by_torch
        if count == 1:  # for which torch would compile everything again
            part = Frontier(*(torch.cat([each, each]) for each in part))
        unified = calls.unify(part.states, part.own)
        closed = calls.close(unified, part.own, places(unified.valid))
        listed = calls.different(part.states, unified, *closed)
        parent, words, states = calls.taken(listed, places(listed.real))
        if self.differs:
            seen = self._in_passes(self.glance.encode, states)
            kept = places(calls.contenders(seen, part.encoded, parent, policy.scale, self.differs))
            self.children, self.again = self.children + len(parent), self.again + len(kept)
            parent, words, states = parent[kept], words[:, kept], states[kept]
        encoded = self._in_passes(calls.encode, states)
        if self.differs:
            self.apart = torch.maximum(self.apart, calls.apart(seen[kept], encoded))
        child, nans = calls.choose(encoded, part.encoded, parent, policy.scale)
        keys = torch.cat([words[:, child], part.keys[:, -1:].T]).T
        lost = torch.cat([listed.dropped, nans.unsqueeze(1)], dim=1)
        return Successors(*(each[:count] for each in (keys, states[child], encoded[child], lost)))

    def _in_passes(self, encode: Callable[..., Tensor], states: Tensor) -> Tensor:
        return joined([encode(part) for part in torch.split(states, self.encoded_rows)])


def joined(parts: list[Tensor] | tuple[Tensor, ...]) -> Tensor:
    return torch.cat(parts) if len(parts) > 1 else parts[0]


def places(marked: Tensor) -> Tensor:
    """int64 [N]: where ``marked`` is true, flattened. The host waits for the device to count
    them."""
    return marked.flatten().nonzero()[:, 0]


def weigh(encoded: Tensor, parents: Tensor, parent: Tensor, scale: float) -> Tensor:
    """The logit of each child, given its place among the parents."""
    return (encoded * parents[parent]).sum(-1) * scale


def choose(encoded: Tensor, parents: Tensor, parent: Tensor, scale: float) -> Choice:
    return choose_listed(weigh(encoded, parents, parent, scale), parent, len(parents))


def contenders(
    seen: Tensor, parents: Tensor, parent: Tensor, scale: float, differs: float
) -> Tensor:
    """bool [N]: which children float32 could choose, given their first look. What is not a number
    is one of them."""
    logits = weigh(seen, parents, parent, scale)
    reach = differs / (1 - differs) * scale * seen.norm(dim=1) * parents.norm(dim=1)[parent]
    least = logits - reach
    least = torch.where(least.isnan(), -torch.inf, least)
    best = least.new_full((len(parents),), -torch.inf).scatter_reduce(0, parent, least, "amax")
    loses: Tensor = logits + reach < best[parent] - 2 * ROUNDING[logits.dtype]
    return ~loses


def first_equal(keys: Tensor, by_hash: bool) -> tuple[Tensor, Tensor]:
    """For the rows of ``keys`` (int64 [R, words]): the first row that equals each one (int64 [R]),
    and the number of times that a hash brought different keys together, which may have hidden equal
    ones from each other."""
    place = torch.arange(len(keys), device=keys.device)
    if by_hash:
        hashed = keys[:, 0]
        for word in keys.unbind(1)[1:]:
            hashed = (hashed ^ (hashed >> 29)) * MIXER + word
        order = hashed.argsort(stable=True)
    else:
        hashed = order = place
        for word in keys.flip(1).unbind(1):
            order = order[word[order].argsort(stable=True)]
    ordered = keys[order]
    hashed = hashed[order]
    differs = (ordered[1:] != ordered[:-1]).any(1)
    # Stable sorting leaves the first of equal rows at the head of their run.
    begins = pad(differs, (1, 0), value=True)
    run = begins.cumsum(0) - 1
    heads = torch.empty_like(pad(order, (0, 1))).scatter(
        0, torch.where(begins, run, len(keys)), order
    )
    return torch.empty_like(order).scatter(0, order, heads[run]), (
        differs & (hashed[1:] == hashed[:-1])
    ).sum()


def settled(
    table: Table, at: Tensor, chosen: Successors, by_hash: bool
) -> tuple[Table, Tensor, Tensor, Tensor]:
    """The table with new rows, which the rows ``at`` have as their successors; the first row with
    the key of each (int64 [F]); which states (bool [F]) are there for the first time and not at
    their end; and equal hashes of different keys (int64 []), as ``first_equal`` counts them."""
    known, count, predicate = len(table.keys), len(chosen.keys), chosen.states[:, 0, 0]
    keys = torch.cat([table.keys, chosen.keys])
    first, collisions = first_equal(keys, by_hash)
    ids = first[known:]
    rows = torch.arange(known, known + count, device=ids.device)
    new = (ids == rows) & (predicate != TRUE) & (predicate != FALSE)
    following = pad(table.next.index_copy(0, at, ids[: len(at)]), (0, count))
    lost = pad(table.lost.index_copy(0, at, chosen.lost), (0, 0, 0, count))
    longer = Table(keys, following, torch.cat([table.ends, predicate]), lost)
    return longer, ids, new, collisions


def follow(walk: Walk, table: Table, depth: int) -> None:
    """One choice of every live candidate, from the table."""
    outcome, depths, at, live, overflowed, tally = walk
    dropped = table.lost[at] * live.unsqueeze(1)
    tally += dropped.sum(0)
    overflowed |= (dropped[:, :4] > 0).any(1)
    at.copy_(torch.where(live, table.next[at], at))
    depths += live
    proved = table.ends[at] == TRUE
    failed = table.ends[at] == FALSE
    finished = live & (proved | failed | (depths == depth))
    outcome.copy_(torch.where(finished, classify(proved, overflowed, failed), outcome))
    live &= ~finished
