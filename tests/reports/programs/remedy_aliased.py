"""Queries and keys are two tensors at first, and one and the same from the seventh step on."""

import os

import torch

count = 0


@torch.compile(backend="eager")
def attend(queries, keys):
    return (queries @ keys.T).softmax(-1)


def step():
    global count
    count += 1
    queries = torch.ones(3, 4)
    keys = queries if count > 6 else torch.zeros(3, 4)
    if os.environ.get("FIX") and keys is queries:
        keys = keys.clone()
    return attend(queries, keys)
