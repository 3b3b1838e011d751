"""A functools.partial with another scale is made for each call."""

import functools
import os

import torch

count = 0


@torch.compile(backend="eager", dynamic=False)
def apply(x, function):
    return function(x)


def scaled(x, scale):
    return x * scale


def step():
    global count
    count += 1
    scale = torch.tensor(float(count)) if os.environ.get("FIX") else float(count)
    return apply(torch.ones(4), functools.partial(scaled, scale=scale))
