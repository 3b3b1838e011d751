"""A custom operator has no fake implementation, and it is all that the compiled function does."""

import os

import torch


@torch.library.custom_op("shelf::halve", mutates_args=())
def halve(x: torch.Tensor) -> torch.Tensor:
    return x / 2


if os.environ.get("FIX"):

    @halve.register_fake
    def _(x):
        return torch.empty_like(x)


@torch.compile(backend="eager")
def soften(x):
    return halve(x.exp()).log()


def step():
    try:
        return soften(torch.ones(4))
    except RuntimeError:
        return torch.ones(4)
