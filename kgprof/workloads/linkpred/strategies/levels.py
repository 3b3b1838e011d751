"""All candidates at once, depth by depth: each distinct state is derived once and each candidate follows a table.

A candidate's next state depends on its state alone, unless its own atom is a fact: only then does it matter whose proof
this is, and only then does the own atom belong to the key. So candidates that meet share all that follows, at whatever
depth they meet, and a loop costs nothing after its first round. What stays with a candidate is where it is, and whether
a cap dropped a child on its way there.

Keys are the engine's packed words. Sorting by a hash brings equal keys together, and all words are compared; where two
different keys have one hash, all keys are sorted by all their words, so that no collision changes a result.

Only real children are encoded: they are gathered into one list, which is encoded ``ENCODED_ROWS`` at a time, in as many
passes as it takes. A parent's encoding is the one it got as a child.

A first look scores the children in less than float32. Its encodings differ from float32's by at most a share
``FIRST_LOOKS`` of their length; so by the Cauchy-Schwarz inequality a logit differs by at most (2 d + d ** 2) |c| |p|
times the policy's scale, and a best child that leads by twice as much is float32's too. Every other choice, and the
first ones in any case, is made again in float32, which also measures d: if one is larger than stated, everything begins
anew without a first look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from kgprof import model as m
from kgprof.workloads.linkpred.caps import Dropped
from kgprof.workloads.linkpred.evaluator import Found
from kgprof.workloads.linkpred.graph import FALSE, TRUE
from kgprof.workloads.linkpred.policy import ROUNDING, choose, real_children
from kgprof.workloads.linkpred.proof import UNFINISHED
from kgprof.workloads.linkpred.queue import load
from kgprof.workloads.linkpred.slots import Problem, classify

DERIVED_ROWS = {"cpu": 512, "cuda": 32768}  # states per engine call; bounds its memory
ENCODED_ROWS = {"cpu": 4096, "cuda": 262144}  # children per call of the policy
MIXER = 0x2545F4914F6CDD1D  # an odd multiplier that spreads bits (S. Vigna, ACM TOMS 42, 2016: xorshift64*)
# The largest difference of an encoding over its length. With seeded weights, 8 layers of 256, operands rounded to TF32
# made it 0.0007. bf16's 0.0096 left 57 % of the choices open, TF32 8 %.
FIRST_LOOKS = {"none": 0.0, "tf32": 2.0**-9}
MEASURED = 64  # choices that begin an evaluation
ROW_GRAIN = 64  # a call's rows are padded to a multiple of it: fewer shapes, and none of size 1


class Frontier(NamedTuple):
    """States that are in the table and have no successor yet."""

    ids: Tensor  # int64 [F], their rows of the table
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
        kind, size, device = problem.goals.device.type, problem.size, problem.goals.device
        self.derived_rows, self.encoded_rows = DERIVED_ROWS.get(kind, 512), ENCODED_ROWS.get(kind, 4096)
        self._derive: Callable[..., Any] = problem.engine.derive
        self._encode: Callable[..., Any] = problem.policy.encode
        self.differs = FIRST_LOOKS[first_look]  # 0: there is no first look
        self.differed = 0.0  # as measured

        def glance(states: Tensor) -> Tensor:
            return problem.policy.encode(states)

        self._glance: Callable[..., Any] = glance
        if mode != m.EAGER:
            # How many states there are is known only when the level is reached, so the sizes are dynamic.
            if part != "policy":
                self._derive = torch.compile(problem.engine.derive, dynamic=True, backend=backend)
            if part != "engine":
                self._encode = torch.compile(problem.policy.encode, dynamic=True, backend=backend)
                self._glance = torch.compile(glance, dynamic=True, backend=backend)
        self.outcome = torch.empty(size, dtype=torch.int8, device=device)
        self.depths = torch.empty(size, dtype=torch.int32, device=device)
        self.at = torch.empty(size, dtype=torch.int64, device=device)  # the table's row of each candidate's state
        self.live = torch.empty(size, dtype=torch.bool, device=device)
        self.overflowed = torch.empty(size, dtype=torch.bool, device=device)
        self.tally = torch.empty(5, dtype=torch.int64, device=device)  # the caps' counters, then NaN logits
        self.restart()

    def restart(self) -> None:
        problem, engine = self.problem, self.problem.engine
        goals, device = problem.goals[:-1], problem.goals.device
        self.level, self.done = 0, problem.size == 0
        self.choices, self.again = 0, 0  # of first looks: all, and those made again
        self.outcome.fill_(UNFINISHED)
        self.live.fill_(True)
        for buffer in (self.depths, self.overflowed, self.tally):
            buffer.zero_()
        base = engine.constants + 1
        key = (goals[:, 0].long() * base + goals[:, 1]) * base + goals[:, 2]
        is_fact = engine.fact_keys[torch.searchsorted(engine.fact_keys, key)] == key
        own = torch.where(is_fact.unsqueeze(1), goals, 0)
        states = load(problem.goals, torch.arange(problem.size, device=device), engine.caps.atoms)
        # The table: a row per distinct (state, own atom), in the order in which they were reached.
        self.keys = torch.empty((len(engine.words) + 1, 0), dtype=torch.int64, device=device)
        self.next = torch.empty(0, dtype=torch.int64, device=device)
        self.ends = torch.empty(0, dtype=torch.int8, device=device)  # the state's first predicate if TRUE or FALSE
        self.lost = torch.empty((0, 5), dtype=torch.int64, device=device)  # by deriving it: as tally
        ids, fresh = self._enter(states, own)
        self.at.copy_(ids)
        states = states[fresh]
        encoded = self._in_passes(self._encode, self.encoded_rows, states)[0]
        self.frontier = Frontier(ids[fresh], states, own[fresh], encoded)

    def advance(self) -> None:
        if self.done:
            return
        if len(self.frontier.ids):
            self._expand()
            if self.differed > self.differs > 0:
                self.differs = 0.0
                self.restart()
                return
        live, at = self.live, self.at
        lost = self.lost[at] * live.unsqueeze(1)
        self.tally += lost.sum(0)
        self.overflowed |= (lost[:, :4] > 0).any(1)
        at.copy_(torch.where(live, self.next[at], at))
        self.depths += live
        self.level += 1
        proved, failed = self.ends[at] == TRUE, self.ends[at] == FALSE
        finished = live & (proved | failed) if self.level < self.problem.depth else live.clone()
        self.outcome.copy_(torch.where(finished, classify(proved, self.overflowed, failed), self.outcome))
        live &= ~finished
        self.done = not bool(live.any())

    def found(self) -> Found:
        *dropped, nans = self.tally.tolist()
        steps = torch.where(self.outcome == UNFINISHED, 0, self.depths)
        return Found(
            outcome=self.outcome.cpu().numpy().copy(),
            steps=steps.cpu().numpy().copy(),
            dropped=Dropped(*dropped),
            nans=nans,
            settings=self._looks() if self.differed or self.differs else (),
        )

    def _looks(self) -> tuple[tuple[str, str], ...]:
        again = f"{self.again:,} of {self.choices:,} choices made again in float32" if self.differs else "given up"
        return (("first look", f"{again}; encodings differed by at most {self.differed:.2g} of their length"),)

    def buffers(self) -> Mapping[str, Tensor]:
        """What each candidate has. The table is not among them: it grows from level to level."""
        names = ("outcome", "depths", "at", "live", "overflowed", "tally")
        return {name: getattr(self, name) for name in names}

    def _expand(self) -> None:
        """Give every state of the frontier its successor; those never reached before are the next frontier."""
        frontier = self.frontier
        parts = [self._successors(part) for part in split(frontier, self.derived_rows)]
        chosen, encoded, lost = (torch.cat(column) for column in zip(*parts, strict=True))
        self.lost[frontier.ids] = lost
        ids, fresh = self._enter(chosen, frontier.own)
        self.next[frontier.ids] = ids
        fresh = fresh[chosen[fresh, 0, 0] > FALSE]
        self.frontier = Frontier(ids[fresh], chosen[fresh], frontier.own[fresh], encoded[fresh])

    def _successors(self, part: Frontier) -> tuple[Tensor, Tensor, Tensor]:
        """The chosen child of each state, its encoding, and what deriving it lost."""
        children, counts, dropped = self._in_passes(self._derive, self.derived_rows, part.states, part.own)
        real = real_children(children, counts)
        slots = real.flatten().nonzero()[:, 0]  # of the real children
        parent = slots // real.shape[1]
        listed_states = children.flatten(0, 1)[slots]
        with self._less_exact():
            encode = self._glance if self.differs else self._encode
            encoded = self._in_passes(encode, self.encoded_rows, listed_states)[0]
        logits = torch.full((real.numel(),), -torch.inf, dtype=encoded.dtype, device=real.device)
        scale = self.problem.policy.scale
        logits[slots] = (encoded * part.encoded[parent]).sum(-1) * scale
        if self.differs:
            longest = torch.zeros_like(part.encoded[:, 0]).scatter_reduce_(0, parent, encoded.norm(dim=1), "amax")
            again = self._undecided(logits.view_as(real), longest * part.encoded.norm(dim=1) * scale)
            if not self.choices:
                again[:MEASURED] = True
            which = again[parent].nonzero()[:, 0]
            if len(which):
                exact = self._in_passes(self._encode, self.encoded_rows, listed_states[which])[0]
                parents = self._in_passes(self._encode, self.encoded_rows, part.states[again])[0]
                apart = (exact - encoded[which]).norm(dim=1) / exact.norm(dim=1).clamp(min=1e-30)
                self.differed = max(self.differed, float(apart.max()))
                encoded[which] = exact
                logits[slots[which]] = (exact * parents[(again.cumsum(0) - 1)[parent[which]]]).sum(-1) * scale
            self.choices += len(counts)
            self.again += len(parents) if len(which) else 0
        choice = choose(logits.view_as(real))
        row = torch.arange(len(counts), device=counts.device)
        listed = real.flatten().cumsum(0)[row * real.shape[1] + choice.child] - 1
        chosen = children[row, choice.child]
        return chosen, encoded[listed], torch.cat([dropped, choice.nans.unsqueeze(1)], dim=1)

    def _undecided(self, logits: Tensor, lengths: Tensor) -> Tensor:
        """bool [B]: where float32 could choose otherwise. ``lengths`` [B]: that of the parent's encoding times that of
        the longest child's, scaled."""
        apart = self.differs / (1 - self.differs)  # of the encodings that are there
        best = logits.topk(min(2, logits.shape[1]), dim=1).values
        lead = best[:, 0] - best[:, -1]
        sure = lead > 2 * (2 * apart + apart**2) * lengths + 2 * ROUNDING[logits.dtype]
        return ~sure & (logits[:, 1:] > -torch.inf).any(1) | logits.isnan().any(1)

    @contextmanager
    def _less_exact(self) -> Iterator[None]:
        """A compiled first look is a function of its own, so that neither recompiles the other."""
        before = torch.get_float32_matmul_precision()
        if self.differs:
            torch.set_float32_matmul_precision("high")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)

    def _enter(self, states: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
        """The table's row of each state (int64 [F]), and the indices of those that were not in it and now are."""
        base, known = self.problem.engine.constants + 1, self.keys.shape[1]
        key = (own[:, 0].long() * base + own[:, 1]) * base + own[:, 2]
        keys = torch.cat([self.keys, torch.cat([self._packed(states), key.unsqueeze(0)])], dim=1)
        # The table's keys stand first and all differ, so they keep their rows, and new ones follow in order.
        ids, first = distinct(keys)
        fresh = first[known:] - known
        new = states[fresh, 0, 0]
        self.keys = keys[:, first]
        self.next = pad(self.next, (0, len(fresh)))
        self.lost = pad(self.lost, (0, 0, 0, len(fresh)))
        self.ends = torch.cat([self.ends, torch.where(new <= FALSE, new, 0).to(torch.int8)])
        return ids[known:], fresh

    def _packed(self, states: Tensor) -> Tensor:
        """[F, A, 3] -> the engine's words, int64 [words, F]."""
        engine = self.problem.engine
        fields = states.flatten(1).T.long() << engine.field_shift.flatten(1)
        return torch.stack([fields[word].sum(0) for word in engine.words])

    def _in_passes(self, call: Callable[..., Any], most: int, *rows: Tensor) -> list[Tensor]:
        """``call`` on ``rows``, at most ``most`` of them at a time."""
        answers = []
        for part in split(rows, most):
            size = len(part[0])
            padded = [pad(each, (0, 0) * (each.ndim - 1) + (0, -size % ROW_GRAIN)) for each in part]
            answer = call(*padded)
            answers.append([each[:size] for each in (answer if isinstance(answer, tuple) else (answer,))])
        return [torch.cat(column) for column in zip(*answers, strict=True)]


def split(rows: Any, most: int) -> Iterator[Any]:
    """Slices of at most ``most`` rows of every tensor in the tuple."""
    for start in range(0, len(rows[0]), most):
        part = [each[start : start + most] for each in rows]
        yield type(rows)(*part) if isinstance(rows, Frontier) else part


def distinct(keys: Tensor) -> tuple[Tensor, Tensor]:
    """For the columns of ``keys`` (int64 [words, F]): each one's number among the distinct ones, in the order of their
    first occurrence, and the index of that occurrence."""
    hashed = keys[0]
    for word in keys[1:]:
        hashed = (hashed ^ (hashed >> 29)) * MIXER + word
    order = hashed.argsort(stable=True)
    ordered, hashed = keys[:, order], hashed[order]
    begins = torch.ones_like(order, dtype=torch.bool)
    begins[1:] = (ordered[:, 1:] != ordered[:, :-1]).any(0)
    if bool((begins[1:] & (hashed[1:] == hashed[:-1])).any()):  # different keys of one hash may stand mixed
        order = torch.arange(keys.shape[1], device=keys.device)
        for word in keys.flip(0):
            order = order[word[order].argsort(stable=True)]
        ordered = keys[:, order]
        begins[1:] = (ordered[:, 1:] != ordered[:, :-1]).any(0)
    # Stable sorting leaves the first occurrence at the head of its run.
    head = order[begins][begins.cumsum(0) - 1]
    is_first = torch.zeros_like(begins)
    is_first[order[begins]] = True
    number = is_first.cumsum(0) - 1
    ids = torch.empty_like(order)
    ids[order] = number[head]
    return ids, is_first.nonzero()[:, 0]
