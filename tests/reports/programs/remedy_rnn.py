"""A GRU stands between two layers of a compiled model."""

import os

import torch

torch._dynamo.config.allow_rnn = bool(os.environ.get("FIX"))


class Reader(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Linear(4, 4)
        self.memory = torch.nn.GRU(4, 4, batch_first=True)

    def forward(self, words):
        words = self.embed(words).tanh()
        states, _ = self.memory(words)
        return states.softmax(-1)


reader = torch.compile(Reader(), backend="eager")


def step():
    with torch.no_grad():
        return reader(torch.ones(2, 3, 4))
