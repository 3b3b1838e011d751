"""One queue for all slots: candidates 0..N-1 are handed out in order, and no slot owns a share of
them. The transposed layout is the other way: each slot has the candidates of its own queries, and
idles when it is through with them.

B slots work on N candidates. A slot without a candidate, and a slot that has no result to write,
hold index N: row N of every table is a trash row, so that nothing has to be clamped to a real
index. Clamping would overwrite candidate 0 or N-1. N = 0, N < B and N > B need no case of their
own.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from kgprof.workloads.linkpred.arrays import Ints


class Handout(NamedTuple):
    """What ``hand_out`` gave: ``candidate`` int64 [B] (N: none was left), ``head`` (what is next:
    int64 [], or [B])."""

    candidate: Tensor
    head: Tensor


def hand_out(head: Tensor, asking: Tensor, size: int) -> Handout:
    """Give each slot that asks (bool [B]) the next candidate of ``size``, in slot order, by one
    prefix sum.

    A slot that does not ask gets N here; the caller keeps what it has.
    """
    order = torch.cumsum(asking.to(torch.int64), 0)
    position = head + order - 1
    given = asking & (position < size)
    candidate = torch.where(given, position, size)
    return Handout(candidate, torch.clamp(head + order[-1], max=size))


def own_shares(queries: Ints, slots: int) -> tuple[Tensor, Tensor]:
    """The transposed layout: slot b works on the candidates of the queries b, b + B, b + 2B ...

    ``queries`` int64 [N] is the query of each candidate. Answers the slots' first candidates (int64
    [B]) and the one that follows each candidate in its slot (int64 [N + 1]); N where there is none.
    """
    size = len(queries)
    order = np.lexsort((queries, queries % slots))
    owner = (queries % slots)[order]
    first = np.full(slots, size)
    following = np.full(size + 1, size)
    begins = np.diff(owner, prepend=-1) > 0
    first[owner[begins]] = order[begins]
    following[order[:-1]] = np.where(begins[1:], size, order[1:])
    return torch.from_numpy(first), torch.from_numpy(following)


def hand_out_own(head: Tensor, asking: Tensor, following: Tensor) -> Handout:
    """As ``hand_out``, where ``head`` int64 [B] is the next candidate of each slot's own share."""
    return Handout(
        torch.where(asking, head, following.shape[0] - 1),
        torch.where(asking, following[head], head),
    )


def result_row(candidate: Tensor, finished: Tensor, size: int) -> Tensor:
    """The row (int64 [B]) that each slot writes its result to: its candidate's, or the trash row
    N."""
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
