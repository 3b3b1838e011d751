"""One queue for all slots: candidates 0..N-1 are handed out in order, and no slot owns a share of them.

B slots work on N candidates. A slot without a candidate, and a slot that has no result to write, hold index N: row N
of every table is a trash row, so that nothing has to be clamped to a real index. Clamping would overwrite candidate 0
or N-1. N = 0, N < B and N > B need no case of their own.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Handout(NamedTuple):
    """What ``hand_out`` gave: ``candidate`` int64 [B] (N: none was left), ``head`` int64 [] (the next one in line)."""

    candidate: Tensor
    head: Tensor


def hand_out(head: Tensor, asking: Tensor, size: int) -> Handout:
    """Give each slot that asks (bool [B]) the next candidate of ``size``, in slot order, by one prefix sum.

    A slot that does not ask gets N here; the caller keeps what it has.
    """
    order = torch.cumsum(asking.to(torch.int64), 0)
    position = head + order - 1
    given = asking & (position < size)
    candidate = torch.where(given, position, size)
    return Handout(candidate, torch.clamp(head + order[-1], max=size))


def result_row(candidate: Tensor, finished: Tensor, size: int) -> Tensor:
    """The row (int64 [B]) that each slot writes its result to: its candidate's, or the trash row N."""
    return torch.where(finished, candidate, size)


def with_trash_row(triples: Tensor) -> Tensor:
    """[N, 3] -> [N + 1, 3]; the last row is PAD, the goal of a slot that has no candidate."""
    return torch.cat([triples, triples.new_zeros(1, 3)])


def load(goals: Tensor, candidate: Tensor, atoms: int) -> Tensor:
    """The query states int32 [B, A, 3] of ``candidate`` (int64 [B]): the goal itself, then PAD.

    ``goals`` is ``with_trash_row`` of the candidates' triples, int32 [N + 1, 3].
    """
    goal = goals[candidate].unsqueeze(1)
    return torch.cat([goal, goal.new_zeros(goal.shape[0], atoms - 1, 3)], dim=1)
