"""Sentences of many lengths, in a program that has switched off that sizes become dynamic."""

import os

import torch

count = 0


@torch.compile(backend="eager")
def encode(tokens):
    return tokens.cumsum(0) * 2


def step():
    global count
    count += 1
    tokens = torch.ones(3 + count)
    if os.environ.get("FIX"):
        torch._dynamo.mark_dynamic(tokens, 0)
    with torch._dynamo.config.patch(automatic_dynamic_shapes=False):
        return encode(tokens)
