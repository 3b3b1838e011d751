"""Layers to skip come as a set, and a weight is a global that a table sets before each step."""

import os

import torch

count = 0
WEIGHT = 0.0
TABLE = [number / 8 for number in range(32)]


class Stack(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))

    @torch.compile(backend="eager", dynamic=False)
    def forward(self, x, skipped):
        for index, layer in enumerate(self.layers):
            if index not in skipped:
                x = layer(x)
        return x


@torch.compile(backend="eager", dynamic=False)
def weighted(error, penalty):
    return error + WEIGHT * penalty


stack = Stack()


def step():
    global count, WEIGHT
    WEIGHT = torch.tensor(TABLE[count]) if os.environ.get("FIX") else TABLE[count]
    count += 1
    out = stack(torch.ones(2, 4), {0} if count < 10 else {1, 2})
    return weighted(out.mean(), out.square().mean())
