"""Scores are normalised row by row, and every batch from the seventh on has one dimension more."""

import os

import torch

count = 0


@torch.compile(backend="eager")
def normalised(rows):
    return rows - rows.logsumexp(-1, keepdim=True)


def step():
    global count
    count += 1
    rows = torch.ones(2, 3, 4) if count > 6 else torch.ones(6, 4)
    if os.environ.get("FIX"):
        rows = rows.flatten(0, rows.ndim - 2)
    return normalised(rows)
