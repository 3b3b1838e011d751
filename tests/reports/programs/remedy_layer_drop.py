"""A random number decides inside the compiled function whether a layer runs."""

import os
import random

import torch

layer = torch.nn.Linear(4, 4)
random.seed(0)


@torch.compile(backend="eager")
def block(x):
    if random.random() < 0.5:
        x = layer(x)
    return x + 1


@torch.compile(backend="eager")
def block_given(x, keep):
    return torch.where(keep, layer(x), x) + 1


def step():
    if os.environ.get("FIX"):
        return block_given(torch.ones(2, 4), torch.tensor(random.random() < 0.5))
    return block(torch.ones(2, 4))
