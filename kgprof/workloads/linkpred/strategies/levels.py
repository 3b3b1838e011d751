"""All candidates at once, depth by depth: each distinct state is derived once and each candidate follows a table.

A candidate's next state depends on its state alone, unless its own atom is a fact: only then does it matter whose proof
this is, and only then does the own atom belong to the key. So candidates that meet share all that follows, at whatever
depth they meet, and a loop costs nothing after its first round. What stays with a candidate is where it is, and whether
a cap dropped a child on its way there.

Keys are the engine's packed words. Sorting by a hash brings equal keys together, and all words are compared. Where two
different keys have one hash, everything begins again with keys sorted by all their words: no collision changes results.

Only what is real is worked on: resolvents that unify (a quarter of the places on family) are gathered before they are
pruned, and children (a tenth) before they are encoded. A parent's encoding is the one it got as a child.

A first look encodes the children with float16 products (first_look.py), and float32 only those that can still win. An
encoding of the first look differs from float32's by at most a share d of its length (``FIRST_LOOKS``); so by the
Cauchy-Schwarz inequality a logit differs by at most d / (1 - d) |c| |p| times the policy's scale, and a child whose
logit is further below another's loses in float32 too. Each child that float32 encodes also measures d: if one is larger
than stated, everything begins again without a first look.

In the mode reduce-overhead shapes are static: lists have room for so many entries (``ROOMS``) per state of a level,
whose number is rounded up, and what derives and chooses is one CUDA graph for each such number. Where a list was too
long, everything begins again with more room.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from kgprof import model as m
from kgprof.workloads.linkpred.caps import Dropped
from kgprof.workloads.linkpred.evaluator import Found
from kgprof.workloads.linkpred.first_look import FirstLook
from kgprof.workloads.linkpred.graph import FALSE, PAD, TRUE
from kgprof.workloads.linkpred.policy import ROUNDING, choose_listed
from kgprof.workloads.linkpred.proof import UNFINISHED
from kgprof.workloads.linkpred.queue import load
from kgprof.workloads.linkpred.slots import Problem, classify

DERIVED_ROWS = {"cpu": 512, "cuda": 32768}  # states per engine call; bounds its memory
ENCODED_ROWS = {"cpu": 4096, "cuda": 262144}  # children per call of the policy
MIXER = 0x2545F4914F6CDD1D  # an odd multiplier that spreads bits (S. Vigna, ACM TOMS 42, 2016: xorshift64*)
# The largest difference of an encoding over its length. With seeded weights, 8 layers of 256, it was 0.0006, and 6 %
# more children than parents could still win.
FIRST_LOOKS = {"none": 0.0, "float16": 2.0**-9}


# Where shapes are static: places for each state in the lists of resolvents, children and those that can still win.
ROOMS = (18.0, 16.0, 1.125)


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
    lost: Tensor  # int64 [F, 5], by deriving it: the caps' counters, then NaN logits


class Table(NamedTuple):
    """A row for each state that a level reached; that of its first time has its successor."""

    keys: Tensor  # int64 [R, words + 1]
    next: Tensor  # int64 [R]
    ends: Tensor  # int32 [R], the state's first predicate: TRUE, FALSE or another
    lost: Tensor  # int64 [R, 5], as in Successors


class Captured:
    """A call for at most as many states as ``part`` has, on CUDA as one graph that is launched at once."""

    def __init__(self, call: Callable[[Frontier], Successors], part: Frontier) -> None:
        self.part = part
        self.run: Callable[[], Successors] = lambda: call(part)
        self.graph: torch.cuda.CUDAGraph | None = None
        if part.ids.is_cuda:
            self.run()  # compiles what is not compiled yet, which a capture does not allow
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
                self.chosen = self.run()

    def __call__(self, part: Frontier) -> Successors:
        for buffer, each in zip(self.part, part, strict=True):
            buffer[: len(each)].copy_(each)
        self.part.states[len(part.states) :] = PAD
        if self.graph is None:
            return self.run()
        self.graph.replay()
        return self.chosen


class Levels:
    """A Search (evaluator.py). A step is one level: every candidate that is not finished makes one choice."""

    name: ClassVar[str] = "levels"
    summary: ClassVar[str] = "Depth by depth, each distinct state of all candidates is derived and scored once."
    modes: ClassVar[tuple[str, ...]] = (m.EAGER, "default", "reduce-overhead")

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
        self._fill = ready(fill, "step")
        self._settle, self._follow, self._rows = (ready(call, "step") for call in (settled, follow, rows_of))
        self.outcome = torch.empty(size, dtype=torch.int8, device=device)
        self.depths = torch.empty(size, dtype=torch.int32, device=device)
        self.at = torch.empty(size, dtype=torch.int64, device=device)  # the table's row of each candidate's state
        self.live = torch.empty(size, dtype=torch.bool, device=device)
        self.overflowed = torch.empty(size, dtype=torch.bool, device=device)
        self.tally = torch.empty(5, dtype=torch.int64, device=device)  # the caps' counters, then NaN logits
        # What spoils a result: equal hashes of different keys, d as measured, lists that were too long for their room.
        self.doubts = torch.empty(3, device=device)
        self.looks = torch.empty(2, dtype=torch.int64, device=device)  # children: all, and those that float32 encoded
        self.static = mode == "reduce-overhead"
        self.rooms: tuple[float, ...] = ROOMS
        self.captured: dict[int, Captured] = {}  # by its number of states
        self.restart()

    def restart(self) -> None:
        problem, engine = self.problem, self.problem.engine
        goals, device = problem.goals[:-1], problem.goals.device
        self.level, self.done = 0, problem.size == 0
        self.outcome.fill_(UNFINISHED)
        self.live.fill_(True)
        for buffer in (self.depths, self.overflowed, self.tally, self.doubts, self.looks):
            buffer.zero_()
        base = engine.constants + 1
        own_key = (goals[:, 0].long() * base + goals[:, 1]) * base + goals[:, 2]
        is_fact = engine.fact_keys[torch.searchsorted(engine.fact_keys, own_key)] == own_key
        states = load(problem.goals, torch.arange(problem.size, device=device), engine.caps.atoms)
        keys = torch.cat([engine.pack(states)[..., 0], torch.where(is_fact, own_key, 0).unsqueeze(0)]).T
        none = torch.empty(0, dtype=torch.int64, device=device)
        table = Table(keys[:0], none, none.int(), none.new_empty(0, 5))
        self.table, ids, new, collisions = entered(table, keys, states, self.by_hash)
        self.doubts[0] += collisions
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
        self._follow(*walk, self.table)
        if last:
            neither = torch.zeros_like(self.live)
            ended = classify(neither, self.overflowed, neither)
            self.outcome.copy_(torch.where(self.live, ended, self.outcome))
            self.live.fill_(False)
        # The host waits for the device here, where it has given it the whole level.
        if len(frontier.ids):
            new = new.nonzero()[:, 0]
            self.frontier = self._rows(reached, new)
        # A candidate stands at every state of the frontier.
        self.done = last or (not len(self.frontier.ids) and not bool(self.live.any()))
        if self.done and self._misled():
            self.captured.clear()
            self.restart()

    def _misled(self) -> bool:
        """Whether something that was taken for granted did not hold. It is not taken for granted any more."""
        collisions, differed, overfull = self.doubts.tolist()
        further = differed > self.differs  # both are 0 without a first look
        if self.differs:
            self.differed = differed
        if further:
            self.differs = 0.0
        if collisions:
            self.by_hash = False
        if overfull:
            self.rooms = tuple(1.25 * room for room in self.rooms)
        return bool(further or collisions or overfull)

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
        children, again = self.looks.tolist()
        said = f"{again:,} of {children:,} children encoded in float32" if self.differs else "given up"
        return (("first look", f"{said}; encodings differed by at most {self.differed:.2g} of their length"),)

    def buffers(self) -> Mapping[str, Tensor]:
        """What each candidate has. The table is not among them: it grows from level to level."""
        names = ("outcome", "depths", "at", "live", "overflowed", "tally")
        return {name: getattr(self, name) for name in names}

    def _expand(self) -> tuple[Frontier, Tensor]:
        """Give every state of the frontier its successor. Answers those, and which were never reached before."""
        frontier = self.frontier
        parts = split(frontier, self.derived_rows)
        chosen = [self._successors(part) for part in parts]
        successors = Successors(*(joined(column) for column in zip(*chosen, strict=True)))
        self.table, ids, new, collisions = self._settle(self.table, frontier.ids, successors, self.by_hash)
        self.doubts[0] += collisions
        return Frontier(ids, successors.keys, successors.states, frontier.own, successors.encoded), new

    def _successors(self, part: Frontier) -> Successors:
        count = len(part.ids)
        if self.static:
            size = padded(count)
            if size not in self.captured:
                looks = self.looks.clone()
                self.captured[size] = Captured(self._chosen, filled(part, size))
                self.looks.copy_(looks)  # that was no look
            chosen = self.captured[size](part)
        elif count == 1:  # for which torch would compile everything again
            chosen = self._chosen(filled(part, 2))
        else:
            chosen = self._chosen(part)
        if self.static and len(self.frontier.ids) > count:  # the next replay of a graph writes to the same place
            chosen = Successors(*(each.clone() for each in chosen))
        return Successors(*(each[:count] for each in chosen))

    def _chosen(self, part: Frontier) -> Successors:
        policy, rows = self.problem.policy, len(part.ids)
        unified = self._unify(part.states, part.own)
        closed = self._close(unified, part.own, self._places(unified.valid, rows * self.rooms[0]))
        listed = self._different(part.states, unified, *closed)
        real = listed.real & (part.states[:, :1, 0] != PAD)
        parent, words, states = self._taken(listed, self._places(real, rows * self.rooms[1]))
        if self.differs:
            seen = self._in_passes(self._glance, states)
            # Where shapes are static, the last row has no state, and is given what fills the lists up.
            most = rows - 1 if self.static else rows
            winning = self._contenders(seen, part.encoded, parent, policy.scale, self.differs) & (parent < most)
            self.looks += torch.stack([real.sum(), winning.sum()])
            kept = self._places(winning, rows * self.rooms[2])
            parent, words, states = parent[kept], words[:, kept], states[kept]
        encoded = self._in_passes(self._encode, states)
        if self.differs:
            self.doubts[1] = torch.maximum(self.doubts[1], self._apart(seen[kept], encoded, parent < most))
        logits = self._weigh(encoded, part.encoded, parent, policy.scale)
        child, nans = self._choose(logits, parent, rows)
        child = child.clamp(max=len(logits) - 1)  # of a row without a state
        keys = torch.cat([words[:, child], part.keys[:, -1:].T]).T
        lost = torch.cat([listed.dropped, nans.unsqueeze(1)], dim=1)
        return Successors(keys, states[child], encoded[child], lost)

    def _places(self, marked: Tensor, room: float) -> Tensor:
        """Where ``marked`` is true, flattened: int64 [N]. The host waits for the device to count them, or, where shapes
        are static, ``room`` places are answered, filled up with the last, which nothing is read from."""
        if not self.static:
            return marked.flatten().nonzero()[:, 0]
        places: Tensor
        places, count = self._fill(marked, int(room))
        self.doubts[2] += count >= int(room)
        return places

    def _in_passes(self, encode: Callable[..., Tensor], states: Tensor) -> Tensor:
        return joined([encode(part) for part in torch.split(states, self.encoded_rows)])


def split(rows: Frontier, most: int) -> list[Frontier]:
    """Slices of at most ``most`` rows of every tensor in the tuple."""
    return [Frontier(*parts) for parts in zip(*(torch.split(each, most) for each in rows), strict=True)]


def rows_of(frontier: Frontier, rows: Tensor) -> Frontier:
    return Frontier(*(each[rows] for each in frontier))


def joined(parts: Sequence[Tensor]) -> Tensor:
    return torch.cat(list(parts)) if len(parts) > 1 else parts[0]


def filled(part: Frontier, size: int) -> Frontier:
    """Rows without a state after the others."""
    return Frontier(*(pad(each, (0, 0) * (each.ndim - 1) + (0, size - len(each))) for each in part))


def padded(count: int) -> int:
    """A size above ``count`` that many counts share: at most an eighth above it, or 64."""
    step = max(64, (1 << count.bit_length()) // 16)
    return (count // step + 1) * step


def fill(marked: Tensor, room: int) -> tuple[Tensor, Tensor]:
    """The first ``room`` places where ``marked`` is true, flattened and filled up with the last place; their number."""
    marked = marked.flatten()
    number = marked.cumsum(0)
    places = torch.full((room + 1,), len(marked) - 1, device=marked.device)
    to = torch.where(marked, number - 1, room).clamp(max=room)
    return places.scatter(0, to, torch.arange(len(marked), device=marked.device))[:room], number[-1]


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
    loses: Tensor = logits + reach < best[parent] - 2 * ROUNDING[logits.dtype]
    return ~loses


def apart(seen: Tensor, encoded: Tensor, real: Tensor) -> Tensor:
    """The largest difference over the length of what was looked for, of those that are ``real``."""
    shares = (seen - encoded).norm(dim=1) / encoded.norm(dim=1).clamp(min=1e-30)
    return torch.where(real, torch.where(shares.isnan(), torch.inf, shares), 0).amax()


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


def entered(table: Table, keys: Tensor, states: Tensor, by_hash: bool) -> tuple[Table, Tensor, Tensor, Tensor]:
    """The table with new rows; the first row with the key of each (int64 [F]); which states (bool [F]) are there for
    the first time and not at their end; and collisions as ``first_equal`` counts them."""
    known, count, predicate = len(table.keys), len(keys), states[:, 0, 0]
    table = Table(
        torch.cat([table.keys, keys]),
        pad(table.next, (0, count)),
        torch.cat([table.ends, predicate]),
        pad(table.lost, (0, 0, 0, count)),
    )
    first, collisions = first_equal(table.keys, by_hash)
    ids = first[known:]
    new = (ids == torch.arange(known, known + count, device=ids.device)) & (predicate > FALSE)
    return table, ids, new, collisions


def settled(table: Table, at: Tensor, chosen: Successors, by_hash: bool) -> tuple[Table, Tensor, Tensor, Tensor]:
    """As ``entered``, and the rows ``at`` have the successors."""
    table, ids, new, collisions = entered(table, chosen.keys, chosen.states, by_hash)
    table = table._replace(next=table.next.index_copy(0, at, ids), lost=table.lost.index_copy(0, at, chosen.lost))
    return table, ids, new, collisions


def follow(
    outcome: Tensor,
    depths: Tensor,
    at: Tensor,
    live: Tensor,
    overflowed: Tensor,
    tally: Tensor,
    table: Table,
) -> None:
    """One choice of every live candidate, from the table."""
    dropped = table.lost[at] * live.unsqueeze(1)
    tally += dropped.sum(0)
    overflowed |= (dropped[:, :4] > 0).any(1)
    at.copy_(torch.where(live, table.next[at], at))
    depths += live
    proved, failed = table.ends[at] == TRUE, table.ends[at] == FALSE
    finished = live & (proved | failed)
    outcome.copy_(torch.where(finished, classify(proved, overflowed, failed), outcome))
    live &= ~finished
