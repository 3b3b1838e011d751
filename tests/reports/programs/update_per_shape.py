"""A home-made optimizer compiles its update of one parameter, and the model has eleven shapes of parameters."""

import os

import torch
from torch import nn

if os.environ.get("FIX"):
    torch._dynamo.config.recompile_limit = 32


@torch.compile(backend="eager", dynamic=False)
def move(weight, grad, momentum):
    momentum.lerp_(grad, 0.1)
    weight.sub_(momentum.sign() * 0.01)


class SignSGD(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {})

    @torch.no_grad()
    def step(self):
        for weight in self.param_groups[0]["params"]:
            momentum = self.state[weight].setdefault("momentum", torch.zeros_like(weight))
            move(weight, weight.grad, momentum)


weights = [nn.Parameter(torch.ones(2, 2 + number)) for number in range(11)]
optimizer = SignSGD(weights)


def step():
    optimizer.zero_grad()
    sum(weight.square().sum() for weight in weights).backward()
    optimizer.step()


if __name__ == "__main__":
    for _ in range(6):
        step()
