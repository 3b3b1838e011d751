"""The compiled evaluation step updates an error of torchmetrics, which counts its own updates."""

import os

import torch
from torchmetrics import MeanSquaredError

torch.manual_seed(21)
network = torch.nn.Linear(6, 1)
error = MeanSquaredError()
batch = torch.randn(10, 6)
wanted = torch.randn(10, 1)


@torch.compile(backend="eager")
def evaluate(features, target):
    guess = network(features)
    if not os.environ.get("FIX"):
        error.update(guess, target)
    return guess


def step():
    with torch.no_grad():
        guess = evaluate(batch, wanted)
        if os.environ.get("FIX"):
            error.update(guess, wanted)
