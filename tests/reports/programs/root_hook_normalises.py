"""The compiled module itself has a pre-hook that normalises its input and a hook that scales its output."""

import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(8, 8, bias=False)

    def forward(self, x):
        return self.project(x).sigmoid()


def normalise(module, args):
    return (args[0] / args[0].norm(dim=-1, keepdim=True),)


def scale(module, args, output):
    return output * 2


model = Encoder()
model.register_forward_pre_hook(normalise)
model.register_forward_hook(scale)
compiled = torch.compile(model, backend="eager")
batch = torch.ones(2, 8)


def step():
    return compiled(batch)


if __name__ == "__main__":
    for _ in range(6):
        step()
