"""A moving average under no_grad is compiled, and its decay is a number that warms up."""

import os

import torch

average = torch.zeros(4)
count = 0


@torch.compile(backend="eager", dynamic=False)
@torch.no_grad()
def follow(values, decay):
    average.mul_(decay).add_(values * (1 - decay))


def step():
    global count
    count += 1
    decay = (1 + count) / (10 + count)
    if os.environ.get("FIX"):
        decay = torch.tensor(decay)
    follow(torch.ones(4), decay)
