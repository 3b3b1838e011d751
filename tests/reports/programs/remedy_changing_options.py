"""Keyword options come and go from call to call."""

import os

import torch

count = 0
CALLS = [{}, {"bias": 1.0}, {"mask": torch.ones(4)}, {"mask": torch.ones(4), "bias": 2.0}, {"place": 1}]


@torch.compile(backend="eager")
def score(x, **options):
    if options.get("mask") is not None:
        x = x * options["mask"]
    return x + options.get("bias", 0.0)


def step():
    global count
    count += 1
    options = CALLS[count // 4 % 5]
    if os.environ.get("FIX"):
        options = {"mask": options.get("mask", torch.ones(4)), "bias": torch.tensor(options.get("bias", 0.0))}
    return score(torch.ones(4), **options)
