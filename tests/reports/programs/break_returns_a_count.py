"""A helper that is kept out of the compiled function returns another number in every call."""

import os

import torch

drawn = 0


@torch.compiler.disable
def draw():
    global drawn
    drawn += 1
    return float(drawn)


@torch.compile(backend="eager", dynamic=False)
def block(x):
    x = x.sin()
    scale = draw()
    return x * scale


@torch.compile(backend="eager", dynamic=False)
def block_given(x, scale):
    return x.sin() * scale


def step():
    if os.environ.get("FIX"):
        return block_given(torch.ones(3), torch.tensor(draw()))
    return block(torch.ones(3))
