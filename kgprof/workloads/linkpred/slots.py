"""What the B slots hold, and the parts of a step that every batched strategy is made of.

A step is pure: it reads the strategy's buffers and returns their next contents, so that it compiles
to one graph. ``SlotStrategy.commit`` then copies them into the same buffers outside that graph: the
addresses never change, which lets CUDA graphs replay without copying inputs, and nothing the graph
reads is written while it runs.
"""

from __future__ import annotations

import functools
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from kgprof import model as m
from kgprof.workloads.linkpred.arrays import Ints
from kgprof.workloads.linkpred.graph import FALSE, TRUE
from kgprof.workloads.linkpred.policy import PolicyNetwork, choose
from kgprof.workloads.linkpred.proof import FAILED, OVERFLOW, PROVED, TRUNCATED, UNFINISHED
from kgprof.workloads.linkpred.queue import hand_out, hand_out_own, load, own_shares, with_trash_row
from kgprof.workloads.linkpred.unification import Children, Engine


class Problem(nn.Module):
    """What is to be proved, on one device. A module, so that its tables reach the compiled graph as
    static addresses.

    ``triples`` is int64 [N, 3]; ``depth`` is the number of choices that a proof may take.
    ``queries`` (int64 [N], the query of each candidate) asks for the transposed layout of queue.py.
    """

    goals: Tensor  # int32 [N + 1, 3], queue.with_trash_row of the triples
    first: Tensor  # what a slot begins with: int64 [], or [B] in the transposed layout
    following: Tensor | None  # int64 [N + 1] in the transposed layout

    def __init__(
        self,
        engine: Engine,
        policy: PolicyNetwork,
        triples: Tensor,
        *,
        batch_size: int,
        depth: int,
        queries: Ints | None = None,
        choices: int = 1,
    ) -> None:
        super().__init__()
        self.engine = engine
        self.policy = policy
        self.choices = choices  # of a call of the strategy `stepped`
        first = torch.zeros((), dtype=torch.int64, device=triples.device)
        following = None
        if queries is not None:
            first, following = own_shares(queries, batch_size)
        self.register_buffer("first", first)
        self.register_buffer("following", following)
        self.register_buffer("goals", with_trash_row(triples.to(torch.int32)))
        self.size = triples.shape[0]  # N; as an index it stands for no candidate
        self.batch_size = batch_size
        self.depth = depth

    def derive(self, states: Tensor, candidate: Tensor) -> Children:
        """The children of ``states`` [B, A, 3], each on behalf of ``candidate`` [B], whose own atom
        is no fact."""
        return self.engine.derive(states, self.goals[candidate])


class Slots(NamedTuple):
    candidate: Tensor  # int64 [B]; N where the slot is empty
    states: Tensor  # int32 [B, A, 3]
    depth: Tensor  # int32 [B], choices made so far
    overflowed: Tensor  # bool [B], a cap dropped a child on the way here


class Tally(NamedTuple):
    """Sums over the derivations whose children were chosen among: each state on a candidate's path
    counts once, whatever the strategy."""

    dropped: Tensor  # int64 [4]
    nans: Tensor  # int64 [], real children whose logit was NaN


class Moved(NamedTuple):
    """The slots after their choice. ``idle`` slots finished just now or were empty before."""

    slots: Slots
    finished: Tensor  # bool [B]
    idle: Tensor  # bool [B]
    outcome: Tensor  # int8 [B]; means something where finished
    tally: Tally


class Carried(NamedTuple):
    """All that one step leaves for the next."""

    slots: Slots
    head: Tensor  # the next candidate: int64 [] of the queue, or [B] of each slot's share
    tally: Tally
    done: Tensor  # bool [], no slot holds a candidate any more
    children: Children | None  # where a strategy keeps them from one step to the next

    def tensors(self) -> list[Tensor]:
        return [*self.slots, self.head, *self.tally, self.done, *(self.children or ())]


# The buffers' names, in the order of Carried.tensors.
BUFFERS = (
    *Slots._fields,
    "head",
    *Tally._fields,
    "done",
    "child_states",
    "child_number",
    "child_dropped",
)


class Stepped(NamedTuple):
    """One step's answer: what it leaves, and the results to scatter."""

    carried: Carried
    row: Tensor  # int64 [B], where outcome and depth go; N is the trash row
    outcome: Tensor  # int8 [B]
    depth: Tensor  # int32 [B]


def empty_children(problem: Problem) -> Children:
    device, batch, caps = problem.goals.device, problem.batch_size, problem.engine.caps
    return Children(
        states=torch.zeros((batch, caps.width, caps.atoms, 3), dtype=torch.int32, device=device),
        number=torch.zeros((batch,), dtype=torch.int64, device=device),
        dropped=torch.zeros((batch, 4), dtype=torch.int64, device=device),
    )


def advance(problem: Problem, slots: Slots, children: Children, tally: Tally) -> Moved:
    """Let every live slot choose one of its children; finished is what reached TRUE, FALSE or the
    depth."""
    live = slots.candidate < problem.size
    choice = choose(problem.policy(slots.states, children.states, children.number))
    states = children.states[torch.arange(live.shape[0], device=live.device), choice.child]
    depth = slots.depth + live.to(torch.int32)
    overflowed = slots.overflowed | (children.dropped > 0).any(1)
    proved = states[:, 0, 0] == TRUE
    failed = states[:, 0, 0] == FALSE
    finished = live & (proved | failed | (depth >= problem.depth))
    return Moved(
        slots=Slots(slots.candidate, states, depth, overflowed),
        finished=finished,
        idle=finished | ~live,
        outcome=classify(proved, overflowed, failed),
        tally=Tally(
            dropped=tally.dropped + (children.dropped * live.unsqueeze(1)).sum(0),
            nans=tally.nans + (choice.nans * live).sum(),
        ),
    )


def classify(proved: Tensor, overflowed: Tensor, failed: Tensor) -> Tensor:
    """The class (int8 [B]) of a candidate that ends here, in the order that evaluator.md sets: a
    proof stands whatever was dropped, and a failure after a drop is no failure, only unknown."""
    unproved = torch.where(overflowed, OVERFLOW, torch.where(failed, FAILED, TRUNCATED))
    return torch.where(proved, PROVED, unproved).to(torch.int8)


def refill(problem: Problem, moved: Moved, head: Tensor, asking: Tensor) -> tuple[Slots, Tensor]:
    """Empty the idle slots and load those that ask (bool [B], among the idle) from the queue:
    (slots, new head)."""
    if problem.following is None:
        handout = hand_out(head, asking, problem.size)
    else:
        handout = hand_out_own(head, asking, problem.following)
    slots = moved.slots
    idle = moved.idle
    queries = load(problem.goals, handout.candidate, slots.states.shape[1])
    refilled = Slots(
        candidate=torch.where(idle, handout.candidate, slots.candidate),
        states=torch.where(idle.view(-1, 1, 1), queries, slots.states),
        depth=torch.where(idle, 0, slots.depth),
        overflowed=slots.overflowed & ~idle,
    )
    return refilled, handout.head


class SlotStrategy(nn.Module):
    """A strategy that works on B slots at a time. A subclass says ``step``; the rest is the same
    for all of them.

    ``outcome`` int8 [N + 1] and ``depths`` int32 [N + 1] hold the results, their last row is trash.
    The other buffers are the tensors of ``Carried``.
    """

    name: ClassVar[str]
    summary: ClassVar[str]  # one sentence
    modes: ClassVar[tuple[str, ...]] = (m.EAGER, *m.COMPILED_MODES)
    keeps_children: ClassVar[bool] = False  # from one step to the next

    outcome: Tensor
    depths: Tensor
    candidate: Tensor
    states: Tensor
    depth: Tensor
    overflowed: Tensor
    head: Tensor
    dropped: Tensor
    nans: Tensor
    done: Tensor
    child_states: Tensor
    child_number: Tensor
    child_dropped: Tensor

    def __init__(self, problem: Problem) -> None:
        super().__init__()
        self.problem = problem
        device = problem.goals.device
        rows = problem.size + 1
        self.register_buffer(
            "outcome", torch.full((rows,), UNFINISHED, dtype=torch.int8, device=device)
        )
        self.register_buffer("depths", torch.zeros(rows, dtype=torch.int32, device=device))
        for name, tensor in zip(BUFFERS, self.initial().tensors(), strict=False):
            self.register_buffer(name, tensor)

    def initial(self) -> Carried:
        """Before the first step every slot is empty and the queue is full, so that step does
        nothing but load."""
        problem = self.problem
        batch = problem.batch_size
        zeros = functools.partial(torch.zeros, device=problem.goals.device)
        return Carried(
            slots=Slots(
                candidate=zeros(batch, dtype=torch.int64) + problem.size,
                states=zeros(batch, problem.engine.caps.atoms, 3, dtype=torch.int32),
                depth=zeros(batch, dtype=torch.int32),
                overflowed=zeros(batch, dtype=torch.bool),
            ),
            head=problem.first.clone(),
            tally=Tally(dropped=zeros(4, dtype=torch.int64), nans=zeros((), dtype=torch.int64)),
            done=zeros((), dtype=torch.bool) | (problem.size == 0),
            children=empty_children(problem) if self.keeps_children else None,
        )

    def carried(self) -> Carried:
        """The buffers under their names."""
        children = None
        if self.keeps_children:
            children = Children(self.child_states, self.child_number, self.child_dropped)
        slots = Slots(self.candidate, self.states, self.depth, self.overflowed)
        return Carried(slots, self.head, Tally(self.dropped, self.nans), self.done, children)

    @staticmethod
    def room(batch_size: int, choices: int) -> int:
        """How many choices a step can make: one in each slot, unless the strategy says
        otherwise."""
        return batch_size

    def step(self) -> Stepped:
        """Pure: reads the buffers and writes none. A step after the end finds empty slots only, and
        is harmless."""
        raise NotImplementedError

    def commit(self, stepped: Stepped) -> None:
        """Copy what ``step`` returned into the buffers, at their fixed addresses, and scatter the
        results."""
        self._copy(stepped.carried)
        self.outcome.scatter_(0, stepped.row, stepped.outcome)
        self.depths.scatter_(0, stepped.row, stepped.depth)

    def reset(self) -> None:
        """Back to the start, at the same addresses."""
        self._copy(self.initial())
        self.outcome.fill_(UNFINISHED)
        self.depths.zero_()

    def _copy(self, source: Carried) -> None:
        """One call for each dtype: on CUDA a list of several falls apart into a copy for each
        tensor."""
        by_dtype: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}
        for target, value in zip(self.carried().tensors(), source.tensors(), strict=True):
            targets, sources = by_dtype.setdefault(target.dtype, ([], []))
            targets.append(target)
            sources.append(value)
        for targets, sources in by_dtype.values():
            torch._foreach_copy_(targets, sources)
