"""An adapter of another rank is loaded into the compiled model before every second step."""

import os

import torch

RANK = 16


class Adapter(torch.nn.Module):
    def __init__(self, rank):
        super().__init__()
        self.down = torch.nn.Parameter(torch.ones(rank, 4))
        self.up = torch.nn.Parameter(torch.ones(4, rank))

    def forward(self, x):
        return x @ self.down.T @ self.up.T


class Adapted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.base = torch.nn.Linear(4, 4)
        self.adapter = Adapter(2)

    def forward(self, x):
        return self.base(x) + self.adapter(x)


if os.environ.get("FIX"):
    torch._dynamo.config.force_parameter_static_shapes = False
model = Adapted()
compiled = torch.compile(model, backend="eager")
count = 0


def step():
    global count
    count += 1
    model.adapter = Adapter(2 + count // 2)
    return compiled(torch.ones(2, 4))
