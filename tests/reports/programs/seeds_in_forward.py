"""Reversible layers set the random seed in their forward pass so that dropout can be repeated."""

import torch


class Reversible(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = torch.nn.Linear(5, 5)
        self.drop = torch.nn.Dropout()

    def forward(self, x):
        x = self.mix(x)
        torch.manual_seed(30)
        return self.drop(x) + 1


layer = torch.compile(Reversible(), backend="aot_eager")
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
for _ in range(12):
    optimizer.zero_grad()
    layer(torch.ones(2, 5)).sum().backward()
    optimizer.step()
