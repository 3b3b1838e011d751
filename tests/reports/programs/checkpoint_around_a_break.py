"""A checkpointed attention block reads a scale as a Python number, so torch gives the whole forward up."""

import os

import torch
from torch.utils.checkpoint import checkpoint


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.query = torch.nn.Linear(10, 10)
        self.key = torch.nn.Linear(10, 10)

    def scores(self, x):
        query, key = self.query(x), self.key(x)
        scale = query.abs().amax()
        if not os.environ.get("FIX"):
            scale = scale.item()
        return torch.softmax(query @ key.mT / (1 + scale), -1) @ x

    def forward(self, x):
        return x + checkpoint(self.scores, x, use_reentrant=False)


torch.manual_seed(15)
model = torch.compile(torch.nn.Sequential(Block(), Block()), backend="aot_eager")


def step():
    loss = model(torch.randn(2, 6, 10)).square().mean()
    loss.backward()
    return loss
