"""All candidates at once, depth by depth: each distinct state is derived once and each candidate follows a table.

A candidate's next state depends on its state alone, unless its own atom is a fact: only then does it matter whose proof
this is, and only then does the own atom belong to the key. So candidates that meet share all that follows, at whatever
depth they meet, and a loop costs nothing after its first round. What stays with a candidate is where it is, and whether
a cap dropped a child on its way there.

Keys are the engine's packed words. Sorting by a hash brings equal keys together, and all words are compared. Where two
different keys have one hash, everything begins again with keys sorted by all their words, so that no collision changes a
result.

Only what is real is worked on: resolvents that unify (a quarter of the places on family) are gathered before they are
pruned, and children (a tenth) before they are encoded. A parent's encoding is the one it got as a child.

A first look encodes the children with float16 products (first_look.py), and float32 only those that can still win. An
encoding of the first look differs from float32's by at most a share d of its length (``FIRST_LOOKS``); so by the
Cauchy-Schwarz inequality a logit differs by at most d / (1 - d) |c| |p| times the policy's scale, and a child whose logit
is further below another's loses in float32 too. Each child that float32 encodes also measures d: if one is larger than
stated, everything begins again without a first look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from kgprof import model as m
from kgprof.workloads.linkpred.caps import Dropped
from kgprof.workloads.linkpred.evaluator import Found
from kgprof.workloads.linkpred.first_look import FirstLook
from kgprof.workloads.linkpred.graph import FALSE, TRUE
from kgprof.workloads.linkpred.policy import ROUNDING, choose_listed
from kgprof.workloads.linkpred.proof import UNFINISHED
from kgprof.workloads.linkpred.queue import load
from kgprof.workloads.linkpred.slots import Problem, classify

DERIVED_ROWS = {"cpu": 512, "cuda": 32768}  # states per engine call; bounds its memory
ENCODED_ROWS = {"cpu": 4096, "cuda": 262144}  # children per call of the policy
MIXER = 0x2545F4914F6CDD1D  # an odd multiplier that spreads bits (S. Vigna, ACM TOMS 42, 2016: xorshift64*)
# The largest difference of an encoding over its length. With seeded weights, 8 layers of 256, it was 0.0006, and 3 % more
# children than parents could still win.
FIRST_LOOKS = {"none": 0.0, "float16": 2.0**-9}


class Frontier(NamedTuple):
    """States that are in the table and have no successor yet."""

    ids: Tensor  # int64 [F], their rows of the table
    keys: Tensor  # int64 [F, words + 1]
    states: Tensor  # int32 [F, A, 3]
    own: Tensor  # int32 [F, 3], zero unless the own atom is a fact
    encoded: Tensor  # [F, hidden]


class Levels:
    """A Search (evaluator.py). A step is one level: every candidate that is not finished makes one choice."""

    name: ClassVar[str] = "levels"
    summary: ClassVar[str] = "Depth by depth, each distinct state of all candidates is derived and scored once."
    modes: ClassVar[tuple[str, ...]] = (m.EAGER, "default")

    def __init__(
        self, problem: Problem, mode: str, backend: str = "inductor", part: str = "step", first_look: str = "none"
    ) -> None:
        self.problem = problem
        engine, policy = problem.engine, problem.policy
        kind, size, device = problem.goals.device.type, problem.size, problem.goals.device
        self.derived_rows, self.encoded_rows = DERIVED_ROWS.get(kind, 512), ENCODED_ROWS.get(kind, 4096)
        self.differs = FIRST_LOOKS[first_look]  # 0: there is no first look
        self._glance: Callable[..., Tensor] = FirstLook(policy).encode if self.differs else policy.encode
        self.differed = 0.0  # as measured
        self.by_hash = True

        def ready(call: Callable[..., Any], of: str) -> Callable[..., Any]:
            # How many states there are is known only when the level is reached, so the sizes are dynamic.
            compiles = mode != m.EAGER and part in ("step", of)
            return torch.compile(call, dynamic=True, backend=backend) if compiles else call

        self._unify, self._close = ready(engine.unify, "engine"), ready(engine.close, "engine")
        self._different, self._taken = ready(engine.different, "engine"), ready(engine.taken, "engine")
        self._encode, self._weigh = ready(policy.encode, "policy"), ready(weigh, "policy")
        self._contenders, self._apart = ready(contenders, "policy"), ready(apart, "policy")
        self._choose = ready(choose_listed, "policy")
        self._first_equal, self._follow = ready(first_equal, "step"), ready(follow, "step")
        self.outcome = torch.empty(size, dtype=torch.int8, device=device)
        self.depths = torch.empty(size, dtype=torch.int32, device=device)
        self.at = torch.empty(size, dtype=torch.int64, device=device)  # the table's row of each candidate's state
        self.live = torch.empty(size, dtype=torch.bool, device=device)
        self.overflowed = torch.empty(size, dtype=torch.bool, device=device)
        self.tally = torch.empty(5, dtype=torch.int64, device=device)  # the caps' counters, then NaN logits
        self.doubts = torch.empty(2, device=device)  # equal hashes of different keys; d as measured
        self.restart()

    def restart(self) -> None:
        problem, engine = self.problem, self.problem.engine
        goals, device = problem.goals[:-1], problem.goals.device
        self.level, self.done = 0, problem.size == 0
        self.children, self.again = 0, 0  # of first looks: all, and those that float32 encoded
        self.outcome.fill_(UNFINISHED)
        self.live.fill_(True)
        for buffer in (self.depths, self.overflowed, self.tally, self.doubts):
            buffer.zero_()
        base = engine.constants + 1
        own_key = (goals[:, 0].long() * base + goals[:, 1]) * base + goals[:, 2]
        is_fact = engine.fact_keys[torch.searchsorted(engine.fact_keys, own_key)] == own_key
        states = load(problem.goals, torch.arange(problem.size, device=device), engine.caps.atoms)
        keys = torch.cat([engine.pack(states)[..., 0], torch.where(is_fact, own_key, 0).unsqueeze(0)]).T
        # The table: a row for each state that was reached in each level; that of its first time has its successor.
        self.keys = keys[:0]
        self.next = torch.empty(0, dtype=torch.int64, device=device)
        self.ends = torch.empty(0, dtype=torch.int32, device=device)  # the state's first predicate: TRUE, FALSE, other
        self.lost = torch.empty((0, 5), dtype=torch.int64, device=device)  # by deriving it: as tally
        ids, new = self._enter(keys, states)
        self.at.copy_(ids)
        new = new.nonzero()[:, 0]
        own = torch.where(is_fact.unsqueeze(1), goals, 0)[new]
        encoded = self._in_passes(self._encode, states[new])
        self.frontier = Frontier(ids[new], keys[new], states[new], own, encoded)

    def advance(self) -> None:
        if self.done:
            return
        self.level += 1
        last, frontier = self.level == self.problem.depth, self.frontier
        if len(frontier.ids):
            reached, new = self._expand()
        walk = (self.outcome, self.depths, self.at, self.live, self.overflowed, self.tally)
        self._follow(*walk, self.next, self.ends, self.lost)
        if last:
            neither = torch.zeros_like(self.live)
            ended = classify(neither, self.overflowed, neither)
            self.outcome.copy_(torch.where(self.live, ended, self.outcome))
            self.live.fill_(False)
        # The host waits for the device here, where it has given it the whole level.
        if len(frontier.ids):
            new = new.nonzero()[:, 0]
            self.frontier = Frontier(*(each[new] for each in reached))
        # A candidate stands at every state of the frontier.
        self.done = last or (not len(self.frontier.ids) and not bool(self.live.any()))
        if self.done and self._misled():
            self.restart()

    def _misled(self) -> bool:
        """Whether something that was taken for granted did not hold. It is not taken for granted any more."""
        collisions, differed = self.doubts.tolist()
        further = differed > self.differs  # both are 0 without a first look
        if self.differs:
            self.differed = differed
        if further:
            self.differs = 0.0
        if collisions:
            self.by_hash = False
        return further or collisions > 0

    def found(self) -> Found:
        *dropped, nans = self.tally.tolist()
        steps = torch.where(self.outcome == UNFINISHED, 0, self.depths)
        return Found(
            outcome=self.outcome.cpu().numpy().copy(),
            steps=steps.cpu().numpy().copy(),
            dropped=Dropped(*dropped),
            nans=nans,
            settings=self._looks(),
        )

    def _looks(self) -> tuple[tuple[str, str], ...]:
        if not (self.differs or self.differed):
            return ()
        again = f"{self.again:,} of {self.children:,} children encoded in float32" if self.differs else "given up"
        return (("first look", f"{again}; encodings differed by at most {self.differed:.2g} of their length"),)

    def buffers(self) -> Mapping[str, Tensor]:
        """What each candidate has. The table is not among them: it grows from level to level."""
        names = ("outcome", "depths", "at", "live", "overflowed", "tally")
        return {name: getattr(self, name) for name in names}

    def _expand(self) -> tuple[Frontier, Tensor]:
        """Give every state of the frontier its successor. Answers those, and which were never reached before."""
        frontier = self.frontier
        parts = [self._successors(part) for part in split(frontier, self.derived_rows)]
        keys, states, encoded, lost = (joined(column) for column in zip(*parts, strict=True))
        self.lost[frontier.ids] = lost
        ids, new = self._enter(keys, states)
        self.next[frontier.ids] = ids
        return Frontier(ids, keys, states, frontier.own, encoded), new

    def _successors(self, part: Frontier) -> tuple[Tensor, ...]:
        """The chosen child of each state: its key, itself, its encoding; and what deriving it lost."""
        count = len(part.ids)
        if count == 1:  # for which torch would compile everything again
            part = Frontier(*(pad(each, (0, 0) * (each.ndim - 1) + (0, 1)) for each in part))
        unified = self._unify(part.states, part.own)
        closed = self._close(unified, part.own, places(unified.valid))
        listed = self._different(part.states, unified, *closed)
        parent, words, states = self._taken(listed, places(listed.real))
        if self.differs:
            seen = self._in_passes(self._glance, states)
            scale = self.problem.policy.scale
            winning = places(self._contenders(seen, part.encoded, parent, scale, self.differs))
            self.children, self.again = self.children + len(seen), self.again + len(winning)
            parent, words, states = parent[winning], words[:, winning], states[winning]
        encoded = self._in_passes(self._encode, states)
        if self.differs:
            self.doubts[1] = torch.maximum(self.doubts[1], self._apart(seen[winning], encoded))
        logits = self._weigh(encoded, part.encoded, parent, self.problem.policy.scale)
        child, nans = self._choose(logits, parent, len(part.ids))
        keys = torch.cat([words[:, child], part.keys[:, -1:].T]).T
        chosen = (keys, states[child], encoded[child], torch.cat([listed.dropped, nans.unsqueeze(1)], dim=1))
        return tuple(each[:count] for each in chosen)

    def _enter(self, keys: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """Add rows to the table. Answers the first row with each one's key (int64 [F]), and which states (bool [F]) are
        there for the first time and not at their end."""
        known, predicate = len(self.keys), states[:, 0, 0]
        self.keys = torch.cat([self.keys, keys])
        self.next = pad(self.next, (0, len(keys)))
        self.ends = torch.cat([self.ends, predicate])
        self.lost = pad(self.lost, (0, 0, 0, len(keys)))
        first, collisions = self._first_equal(self.keys, self.by_hash)
        self.doubts[0] += collisions
        ids = first[known:]
        return ids, (ids == torch.arange(known, len(first), device=ids.device)) & (predicate > FALSE)

    def _in_passes(self, encode: Callable[..., Tensor], states: Tensor) -> Tensor:
        return joined([encode(part) for part in states.split(self.encoded_rows)])


def split(rows: Frontier, most: int) -> Iterator[Frontier]:
    """Slices of at most ``most`` rows of every tensor in the tuple."""
    yield from (Frontier(*parts) for parts in zip(*(each.split(most) for each in rows), strict=True))


def joined(parts: Sequence[Tensor]) -> Tensor:
    return torch.cat(parts) if len(parts) > 1 else parts[0]


def places(marked: Tensor) -> Tensor:
    """Where ``marked`` is true, flattened. The host waits for the device to count them."""
    return marked.flatten().nonzero()[:, 0]


def weigh(encoded: Tensor, parents: Tensor, parent: Tensor, scale: float) -> Tensor:
    """The logit of each child, given its place among the parents."""
    return (encoded * parents[parent]).sum(-1) * scale


def contenders(seen: Tensor, parents: Tensor, parent: Tensor, scale: float, differs: float) -> Tensor:
    """bool [N]: which children float32 could choose, given their first look. What is not a number is one of them."""
    logits = weigh(seen, parents, parent, scale)
    reach = differs / (1 - differs) * scale * seen.norm(dim=1) * parents.norm(dim=1)[parent]
    least = logits - reach
    least = torch.where(least.isnan(), -torch.inf, least)
    best = least.new_full((len(parents),), -torch.inf).scatter_reduce(0, parent, least, "amax")
    return ~(logits + reach < best[parent] - 2 * ROUNDING[logits.dtype])


def apart(seen: Tensor, encoded: Tensor) -> Tensor:
    """The largest difference over the length of what was looked for."""
    shares = (seen - encoded).norm(dim=1) / encoded.norm(dim=1).clamp(min=1e-30)
    return torch.where(shares.isnan(), torch.inf, shares).amax()


def first_equal(keys: Tensor, by_hash: bool) -> tuple[Tensor, Tensor]:
    """For the rows of ``keys`` (int64 [R, words]): the first row that equals each one (int64 [R]), and the number of
    times that a hash brought different keys together, which may have hidden equal ones from each other."""
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
    ordered, hashed = keys[order], hashed[order]
    differs = (ordered[1:] != ordered[:-1]).any(1)
    # Stable sorting leaves the first of equal rows at the head of their run.
    begins = pad(differs, (1, 0), value=True)
    run = begins.cumsum(0) - 1
    heads = torch.empty_like(pad(order, (0, 1))).scatter(0, torch.where(begins, run, len(keys)), order)
    return torch.empty_like(order).scatter(0, order, heads[run]), (differs & (hashed[1:] == hashed[:-1])).sum()


def follow(
    outcome: Tensor,
    depths: Tensor,
    at: Tensor,
    live: Tensor,
    overflowed: Tensor,
    tally: Tensor,
    following: Tensor,
    ends: Tensor,
    lost: Tensor,
) -> None:
    """One choice of every live candidate, from the table."""
    dropped = lost[at] * live.unsqueeze(1)
    tally += dropped.sum(0)
    overflowed |= (dropped[:, :4] > 0).any(1)
    at.copy_(torch.where(live, following[at], at))
    depths += live
    proved, failed = ends[at] == TRUE, ends[at] == FALSE
    finished = live & (proved | failed)
    outcome.copy_(torch.where(finished, classify(proved, overflowed, failed), outcome))
    live &= ~finished
