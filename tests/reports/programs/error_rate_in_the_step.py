"""A training step under torch.compile updates a metric of torchmetrics and reads its value every fourth step."""

import os

import torch
from torchmetrics import MeanAbsoluteError

torch.manual_seed(3)
layer = torch.nn.Linear(6, 1)
error = MeanAbsoluteError()
inputs, targets = torch.randn(8, 6), torch.randn(8, 1)


@torch.compile(backend="aot_eager")
def loss_of(x, y):
    guess = layer(x)
    if not os.environ.get("FIX"):
        error.update(guess, y)
    return torch.nn.functional.l1_loss(guess, y), guess


steps = 0


def step():
    global steps
    steps += 1
    loss, guess = loss_of(inputs, targets)
    if os.environ.get("FIX"):
        error.update(guess.detach(), targets)
    loss.backward()
    if steps % 4 == 0:
        error.compute()
    return loss.detach()


if __name__ == "__main__":
    for _ in range(8):
        step()
    print(f"{error.compute():.4f}")
