"""One queue, two engine calls: the slots that go on have their children derived at every step, the
refilled ones by a second call that runs only when there are any, behind ``torch.cond``.

Children are kept from one step to the next: a step chooses among the children that the last one
derived.

What ``torch.cond`` demands of a branch: no operand nor a view of one among its outputs, no
mutation, and the same dtypes and strides as the other branch's. The last one fails with Inductor on
CUDA although both branches are contiguous: see ``flat``.
"""

import torch
from torch import Tensor

from kgprof.workloads.linkpred.queue import result_row
from kgprof.workloads.linkpred.slots import (
    Carried,
    Slots,
    SlotStrategy,
    Stepped,
    advance,
    empty_children,
    refill,
)
from kgprof.workloads.linkpred.unification import Children

Flat = tuple[Tensor, Tensor, Tensor]


def flat(children: Children) -> Flat:
    """The three tensors, each in one dimension.

    On CUDA, Inductor's comprehensive padding rounds strides above 1,024 elements up to 128 bytes:
    [256, 120, 6, 3] int32 gets stride 2176 where contiguous is 2160 (= S * A * 3). It spares what a
    graph returns to the user, but not what a branch returns (torch 2.11; 2.13 pins it), while the
    caller asserts the strides that tracing saw, and the compiled step stops with "expected size
    256==256, stride 2176==2160". The innermost stride is never padded, and a tensor of one
    dimension has no other: nothing is left to pad, whatever B, S and A are, and no option of
    Inductor has to be set. The operands are safe as they are: their strides are 3 * A at most.
    """
    return children.states.reshape(-1), children.number, children.dropped.reshape(-1)


class TorchCond(SlotStrategy):
    name = "torch_cond"
    summary = (
        "Continuing slots are derived at every step, refilled ones by a second "
        "engine call behind torch.cond."
    )
    keeps_children = True

    def step(self) -> Stepped:
        problem = self.problem
        now = self.carried()
        assert now.children is not None
        moved = advance(problem, now.slots, now.children, now.tally)
        slots, head = refill(problem, moved, now.head, asking=moved.idle)
        fresh = moved.idle & (slots.candidate < problem.size)
        children = merge(
            fresh, self.derive_fresh(slots, fresh), self.derive_continuing(slots, fresh)
        )
        done = torch.all(slots.candidate == problem.size)
        row = result_row(now.slots.candidate, moved.finished, problem.size)
        return Stepped(
            Carried(slots, head, moved.tally, done, children), row, moved.outcome, moved.slots.depth
        )

    def derive_continuing(self, slots: Slots, fresh: Tensor) -> Children:
        """The children of the slots that go on; a fresh slot's state is left blank here."""
        states = torch.where(fresh.view(-1, 1, 1), 0, slots.states)
        return self.problem.derive(states, slots.candidate)

    def derive_fresh(self, slots: Slots, fresh: Tensor) -> Children:
        """The children of the refilled slots, if there are any; only rows where ``fresh`` holds
        mean anything."""
        states, number, dropped = torch.cond(
            fresh.any(), self._derive_branch, self._nothing_branch, (slots.states, slots.candidate)
        )
        return Children(states.view(self.child_states.shape), number, dropped.view(-1, 4))

    def _derive_branch(self, states: Tensor, candidate: Tensor) -> Flat:
        return flat(self.problem.derive(states, candidate))

    def _nothing_branch(self, states: Tensor, candidate: Tensor) -> Flat:
        return flat(empty_children(self.problem))


def merge(fresh: Tensor, loaded: Children, derived: Children) -> Children:
    """``loaded`` where ``fresh`` (bool [B]), else ``derived``: no slot keeps the children it
    had."""
    return Children(
        torch.where(fresh.view(-1, 1, 1, 1), loaded.states, derived.states),
        torch.where(fresh, loaded.number, derived.number),
        torch.where(fresh.view(-1, 1), loaded.dropped, derived.dropped),
    )
