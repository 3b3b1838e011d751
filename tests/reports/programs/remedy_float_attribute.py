"""The strength of a noise layer is a float attribute that the loop lowers."""

import os

import torch


class Noise(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.strength = torch.tensor(1.0) if os.environ.get("FIX") else 1.0

    def forward(self, x):
        return x + self.strength * x.sin()


noise = Noise()
compiled = torch.compile(noise, backend="eager", dynamic=False)


def step():
    noise.strength = noise.strength * 0.9
    return compiled(torch.ones(3))
