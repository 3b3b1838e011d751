"""A compiled loss hands its number to a running mean, which keeps it."""

import torch


class Mean:
    def __init__(self):
        self.total = 0.0
        self.times = 0

    def add(self, value):
        self.total += value
        self.times += 1


mean = Mean()
weights = torch.ones(4, 1)


@torch.compile(backend="eager")
def loss_of(rows):
    loss = (rows @ weights).square().mean()
    mean.add(loss.item())
    return loss


def step():
    return loss_of(torch.ones(3, 4))
