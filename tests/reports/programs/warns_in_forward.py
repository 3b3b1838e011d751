"""A forward pass warns with a constant text each time it runs."""

import os
import warnings

import torch

warnings.simplefilter("ignore")
if os.environ.get("FIX"):
    torch._dynamo.config.reorderable_logging_functions.add(warnings.warn)


class Pool(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.before = torch.nn.Linear(4, 4)
        self.after = torch.nn.Linear(4, 4)

    def forward(self, x):
        x = self.before(x)
        warnings.warn("pool is deprecated")
        return self.after(x).relu()


pool = torch.compile(Pool())
batch = torch.ones(3, 4)


def step():
    return pool(batch)
