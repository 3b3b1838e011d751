"""A module-level threshold is lowered from step to step."""

import os

import torch

THRESHOLD = torch.tensor(1.0) if os.environ.get("FIX") else 1.0


@torch.compile(backend="eager", dynamic=False)
def clip(x):
    return x.where(x > THRESHOLD, 0.0)


def step():
    global THRESHOLD
    THRESHOLD = THRESHOLD * 0.9
    return clip(torch.ones(4))
