"""Sentences of many lengths meet a function that is compiled with dynamic=False."""

import os

import torch

count = 0


def encode(tokens):
    return tokens.cumsum(0) * 2


if os.environ.get("FIX"):
    fast = torch.compile(encode, backend="eager")
else:
    fast = torch.compile(encode, backend="eager", dynamic=False)


def step():
    global count
    count += 1
    return fast(torch.ones(3 + count))
