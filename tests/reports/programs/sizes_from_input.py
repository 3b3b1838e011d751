"""A script that reads how many rows each step has from its standard input, and takes three sizes where it is empty."""

import sys

import torch

sizes = [int(line) for line in sys.stdin if line.strip()] or [4, 4, 4]


@torch.compile(backend="eager", dynamic=True)
def total(rows):
    return rows.sum() * 2


for size in sizes * 2:
    total(torch.ones(size, 2))
print("read", len(sizes), "sizes from", sys.stdin.name, sys.stdin.mode)
