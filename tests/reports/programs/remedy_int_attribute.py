"""Twelve decoder blocks, each with its own number, whose forward is compiled block by block."""

import os

import torch

torch._dynamo.config.allow_unspec_int_on_nn_module = bool(os.environ.get("FIX"))


class Block(torch.nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.depth = depth
        self.mix = torch.nn.Linear(6, 6)

    @torch.compile(backend="eager")
    def forward(self, h):
        scale = 2.0 / (self.depth + 2)
        return h + self.mix(h).tanh() * scale


blocks = [Block(depth) for depth in range(12)]


def step():
    h = torch.ones(3, 6)
    for block in blocks:
        h = block(h)
    return h
