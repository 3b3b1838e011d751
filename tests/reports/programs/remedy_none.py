"""A weight for each word is given from the seventh step on; before it there is none."""

import os

import torch

count = 0


@torch.compile(backend="eager")
def loss(errors, weights):
    if weights is not None:
        errors = errors * weights
    return errors.sum()


def step():
    global count
    count += 1
    weights = torch.full((5,), 0.5) if count > 6 else None
    if os.environ.get("FIX") and weights is None:
        weights = torch.ones(5)
    return loss(torch.ones(5), weights)
