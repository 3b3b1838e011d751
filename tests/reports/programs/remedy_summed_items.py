"""A list of past states grows by one in every step and is summed inside the compiled function."""

import os

import torch

past = []


@torch.compile(backend="eager")
def blend(past, x):
    for each in past:
        x = x + each
    return x


@torch.compile(backend="eager")
def blend_stacked(past, x):
    return x + past.sum(0)


def step():
    past.append(torch.ones(3))
    if os.environ.get("FIX"):
        return blend_stacked(torch.stack(past), torch.ones(3))
    return blend(past, torch.ones(3))
