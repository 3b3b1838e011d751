"""A module counts its own calls in an integer that it computes with."""

import os

import torch

torch._dynamo.config.allow_unspec_int_on_nn_module = bool(os.environ.get("FIX"))


class Warmup(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.seen = 0
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x):
        self.seen += 1
        return self.layer(x) * min(1.0, self.seen / 100)


model = torch.compile(Warmup(), backend="eager")


def step():
    return model(torch.ones(2, 4))
