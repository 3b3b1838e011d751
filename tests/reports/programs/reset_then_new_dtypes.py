"""Between two resets a function meets a second dtype after warm-up: that is a recompile, the resets are none."""

import torch


@torch.compile(backend="eager")
def halve(x):
    return x / 2


calls = 0


def step():
    global calls
    calls += 1
    if calls in (5, 9):
        torch._dynamo.reset()
    if calls in (7, 8, 11, 12):
        halve(torch.ones(3, dtype=torch.float64))
    return halve(torch.ones(3))
