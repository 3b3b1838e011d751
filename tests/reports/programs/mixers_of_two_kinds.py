"""Blocks with mixers of two classes are compiled one by one and checkpointed in training."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Shift(nn.Module):
    def forward(self, x):
        return x.roll(1, 1)


class Pool(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gate = nn.Linear(width, width)

    def forward(self, x):
        return self.gate(x).cumsum(1) / x.shape[1]


class Block(nn.Module):
    def __init__(self, width, mixer):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mixer = mixer
        self.out = nn.Linear(width, width)

    def forward(self, x):
        return x + self.out(self.mixer(self.norm(x)))


torch.manual_seed(12)
model = nn.ModuleList(Block(6, Pool(6) if number % 2 else Shift()) for number in range(6))
for block in model:
    block.compile(backend="aot_eager")
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)


def step():
    optimizer.zero_grad()
    x = torch.ones(2, 4, 6)
    for block in model:
        x = checkpoint(block, x, use_reentrant=False)
    loss = x.square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


if __name__ == "__main__":
    for _ in range(6):
        step()
