"""A benchmark resets torch before each width, and calls the compiled function in a loop."""

import torch


def kernel(x, y):
    return (x * y).sum(dim=-1)


for width in (4, 8, 16, 32, 64, 128):
    torch._dynamo.reset()
    fast = torch.compile(kernel, backend="eager")
    for _ in range(4):
        fast(torch.ones(2, width), torch.ones(2, width))
