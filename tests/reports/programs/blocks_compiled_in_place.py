"""module.compile() for each of eleven blocks with a whole number of their own, trained by a script."""

import os

import torch

if os.environ.get("FIX"):
    torch._dynamo.config.recompile_limit = 11
torch.manual_seed(2)


class Mixer(torch.nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.depth = depth
        self.mix = torch.nn.Linear(5, 5)

    def forward(self, x):
        return torch.tanh(self.mix(x)) * self.depth


model = torch.nn.ModuleDict({f"part{n}": Mixer(3 * n + 1) for n in range(11)})
for block in model.values():
    block.compile(backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for _ in range(6):
    x = torch.ones(2, 5)
    for block in model.values():
        x = block(x)
    optimizer.zero_grad()
    x.sum().backward()
    optimizer.step()
