"""A compiled model with dropout is switched to evaluation after six steps."""

import os

import torch


class Tagger(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x):
        return torch.dropout(self.layer(x), 0.5, self.training)


model = torch.compile(Tagger(), backend="eager")
count = 0


def step():
    global count
    count += 1
    model.train(count <= 6)
    if os.environ.get("FIX") and count == 1:
        model.eval()
        model(torch.ones(2, 4))
        model.train()
    return model(torch.ones(2, 4))
