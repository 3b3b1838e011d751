"""A reduction is chosen by an enum member that changes from step to step."""

import enum
import os

import torch


class Reduction(enum.Enum):
    SUM = 1
    MEAN = 2
    AMAX = 3


@torch.compile(backend="eager")
def reduce(x, how):
    if how is Reduction.SUM:
        return x.sum()
    return x.mean()


count = 0


def step():
    global count
    count += 1
    how = list(Reduction)[count // 5 % 3]
    if os.environ.get("FIX"):
        how = how is Reduction.SUM
    return reduce(torch.ones(4), how)
