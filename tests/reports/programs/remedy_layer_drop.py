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
def block_drawn(x):
    return torch.where(torch.rand((), device=x.device) < 0.5, layer(x), x) + 1


def step():
    return (block_drawn if os.environ.get("FIX") else block)(torch.ones(2, 4))
