"""Steps under autocast begin after the warm-up."""

import os

import torch

layer = torch.nn.Linear(4, 4)
count = 0


@torch.compile(backend="eager")
def block(x):
    return layer(x).relu()


def step():
    global count
    count += 1
    with torch.autocast("cpu", torch.bfloat16, enabled=bool(os.environ.get("FIX")) or count > 6):
        return block(torch.ones(2, 4))
