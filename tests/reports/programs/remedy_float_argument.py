"""A temperature that is a Python number falls with every step, and sizes are kept static."""

import os

import torch

temperature = 1.0


@torch.compile(backend="eager", dynamic=False)
def sharpen(logits, temperature):
    return (logits / temperature).softmax(-1)


def step():
    global temperature
    temperature *= 0.97
    value = torch.tensor(temperature) if os.environ.get("FIX") else temperature
    return sharpen(torch.ones(2, 5), value)
