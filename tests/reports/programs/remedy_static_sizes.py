"""Sentences of many lengths meet a function that is compiled with dynamic=False."""

import os

import torch

count = 0


@torch.compile(backend="eager", dynamic=False)
def encode(tokens):
    return tokens.cumsum(0) * 2


def step():
    global count
    count += 1
    tokens = torch.ones(3 + count)
    if os.environ.get("FIX"):
        torch._dynamo.mark_dynamic(tokens, 0)
    return encode(tokens)
