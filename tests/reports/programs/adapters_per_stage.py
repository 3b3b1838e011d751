"""Ten adapter modules of one class, each with a rank of its own, compiled through its forward method."""

import os

import torch

if os.environ.get("FIX"):
    torch._dynamo.config.recompile_limit = 10
torch.manual_seed(1)


class Adapter(torch.nn.Module):
    def __init__(self, rank):
        super().__init__()
        self.rank = rank
        self.down = torch.nn.Linear(6, 6, bias=False)

    @torch.compile(backend="eager")
    def forward(self, x):
        return x + self.down(x) / (2 + self.rank)


class Tower(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stages = torch.nn.ModuleList(Adapter(rank) for rank in range(10))

    def forward(self, x):
        for stage in self.stages:
            x = stage(x)
        return x


tower = Tower()


def step():
    return tower(torch.ones(2, 6))
