"""A cache of features gains a key in every step and goes into the compiled function as a whole."""

import os

import torch

features = {}


@torch.compile(backend="eager")
def combine(features, x):
    for name in features:
        x = x + features[name]
    return x


@torch.compile(backend="eager")
def combine_stacked(features, x):
    return x + features.sum(0)


def step():
    features[f"f{len(features)}"] = torch.ones(3)
    if os.environ.get("FIX"):
        return combine_stacked(torch.stack(tuple(features.values())), torch.ones(3))
    return combine(features, torch.ones(3))
