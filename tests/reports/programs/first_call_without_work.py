"""The first call of a compiled function is a trial without weights, which gives its input back."""

import os

import torch

weights = None


@torch.compile(backend="eager")
def weighted(values, weights):
    if weights is None:
        return values
    return (values * weights).sum(0)


def step():
    global weights
    values = torch.rand(6, 4)
    if weights is None and os.environ.get("FIX"):
        weights = torch.rand(6, 4)
    result = weighted(values, weights)
    weights = torch.rand(6, 4)
    return result
