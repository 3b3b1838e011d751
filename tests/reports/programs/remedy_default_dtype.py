"""The default dtype is switched between calls of a compiled function."""

import os

import torch

count = 0


@torch.compile(backend="eager")
def block(x):
    return x * torch.ones(4)


def step():
    global count
    count += 1
    if not os.environ.get("FIX"):
        torch.set_default_dtype((torch.float32, torch.float64)[count > 6])
    return block(torch.zeros(4, dtype=torch.float32))
