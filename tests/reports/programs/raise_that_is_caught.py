"""A check raises, and the same function catches it."""

import torch


@torch.compile(backend="aot_eager")
def halved(x):
    try:
        y = x / x.sum()
        if y.isinf().any():
            raise ZeroDivisionError
    except ZeroDivisionError:
        return x
    return y


def step():
    return halved(torch.tensor([1.0, -1.0]))
