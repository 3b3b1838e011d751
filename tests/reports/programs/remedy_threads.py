"""The loop changes the number of threads while compiled code is in use."""

import os

import torch

count = 0


@torch.compile(backend="eager")
def block(x):
    return x.sin() + 1


def step():
    global count
    count += 1
    if not os.environ.get("FIX"):
        torch.set_num_threads(1 + count % 2 + count // 7)
    return block(torch.ones(4))
