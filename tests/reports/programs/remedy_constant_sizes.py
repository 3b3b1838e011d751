"""Rows are weighted by a ramp that torch.linspace makes of their number, so that each number is a graph."""

import itertools
import os

import torch


@torch.compile(backend="eager")
def ramped(rows):
    ramp = torch.linspace(0, 1, rows.shape[0])
    return (rows * ramp[:, None]).sum(0)


lengths = itertools.cycle((5, 9, 14, 20, 6, 11))


def step():
    rows = torch.ones(next(lengths), 4)
    if os.environ.get("FIX"):
        rows = torch.nn.functional.pad(rows, (0, 0, 0, 20 - rows.shape[0]))
    return ramped(rows)
