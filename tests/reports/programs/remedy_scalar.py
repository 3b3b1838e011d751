"""A compiled evaluation returns its loss as a number beside the answers."""

import os

import torch

torch._dynamo.config.capture_scalar_outputs = bool(os.environ.get("FIX"))
weights = torch.ones(4, 2)


@torch.compile(backend="eager")
def evaluated(rows):
    answers = rows @ weights
    loss = answers.square().mean()
    return answers, {"loss": loss.item()}


def step():
    return evaluated(torch.ones(3, 4))
