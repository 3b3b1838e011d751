"""One compiled layer holds the low-rank adapters of four speakers; a request selects one by name and by strength."""

import itertools

import torch
from torch import nn


class Adapted(nn.Module):
    def __init__(self, width, rank):
        super().__init__()
        self.base = nn.Linear(width, width)
        self.down = nn.ModuleDict()
        self.up = nn.ModuleDict()
        self.strength = {}
        self.active = []
        for name in ("ada", "ben", "cyd", "dee"):
            self.down[name] = nn.Linear(width, rank, bias=False)
            self.up[name] = nn.Linear(rank, width, bias=False)
            self.strength[name] = 1.0

    def select(self, name, strength):
        self.active = [name]
        self.strength[name] = strength

    def forward(self, x):
        y = self.base(x)
        for name in self.active:
            y = y + self.strength[name] * self.up[name](self.down[name](x))
        return y


torch.manual_seed(4)
model = Adapted(8, 2).eval()
speak = torch.compile(model, backend="aot_eager")
requests = itertools.cycle(
    [("ada", 1.0), ("ben", 0.5), ("cyd", 1.0), ("ada", 0.7), ("dee", 1.0), ("ben", 0.25)]
)


@torch.no_grad()
def step():
    model.select(*next(requests))
    return speak(torch.ones(2, 8))


if __name__ == "__main__":
    for _ in range(12):
        step()
