"""A Python random number scales a signal in compiled code, and what follows is compiled for each number that came."""

import random

import torch

random.seed(0)


@torch.compile
def jitter(signal):
    doubled = signal * 2
    scale = random.choice((0.25, 0.5, 0.75))
    return torch.sin(doubled * scale)


def step():
    return jitter(torch.ones(7))
