"""A trunk is frozen at first and trained later, in a model that was compiled while it was frozen."""

import torch
from torch import nn

torch.manual_seed(0)


class Tuned(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(4, 4)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(torch.relu(self.trunk(x)))


model = Tuned()
model.trunk.requires_grad_(False)
compiled = torch.compile(model, backend="aot_eager")
batch = torch.ones(3, 4)
steps = 0


def step():
    global steps
    steps += 1
    if steps == 5:
        model.trunk.requires_grad_(True)
    model.zero_grad()
    compiled(batch).sum().backward()


if __name__ == "__main__":
    for _ in range(10):
        step()
