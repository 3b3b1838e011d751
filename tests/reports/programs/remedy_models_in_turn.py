"""A search tries networks of one class, each wider than the last and compiled by itself."""

import os

import torch


class Ranker(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = torch.nn.Linear(3, width)
        self.outer = torch.nn.Linear(width, 1)

    def forward(self, items):
        return self.outer(self.inner(items).relu())


count = 0
ranker = None


def step():
    global count, ranker
    if count % 2 == 0:
        if os.environ.get("FIX"):
            torch.compiler.reset()
        ranker = torch.compile(Ranker(4 + count), backend="eager")
    count += 1
    return ranker(torch.ones(5, 3))
