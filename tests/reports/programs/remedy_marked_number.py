"""The length of a signal is marked as dynamic, and a table of ten rows fixes it in a helper function."""

import os

import torch

TABLE = torch.arange(10.0)
mark = torch._dynamo.maybe_mark_dynamic if os.environ.get("FIX") else torch._dynamo.mark_dynamic


def looked_up(signal):
    return signal * TABLE


@torch.compile(backend="eager")
def transform(signal):
    shifted = signal + 1
    return looked_up(shifted)


def step():
    signal = torch.ones(10)
    mark(signal, 0)
    return transform(signal)
