"""An exponential schedule changes the float learning rate of a compiled SGD step."""

import os

import torch

lr = torch.tensor(0.5) if os.environ.get("FIX") else 0.5
weight = torch.nn.Parameter(torch.ones(8))
sgd = torch.optim.SGD([weight], lr=lr)
schedule = torch.optim.lr_scheduler.ExponentialLR(sgd, 0.9)


@torch.compile(backend="eager", dynamic=False)
def update():
    sgd.step()


def step():
    weight.grad = torch.ones(8)
    update()
    schedule.step()
