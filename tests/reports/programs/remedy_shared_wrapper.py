"""Eleven projections of torch's own class are compiled one by one."""

import os

import torch

torch.manual_seed(0)
if os.environ.get("FIX"):
    torch._dynamo.config.recompile_limit = 11
heads = [torch.compile(torch.nn.Linear(6, 3 + width), backend="eager") for width in range(11)]


def step():
    x = torch.ones(2, 6)
    return [head(x) for head in heads]
