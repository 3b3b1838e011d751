"""Nine names of domains take turns as an argument that a table is looked up with."""

import torch

SCALES = {f"domain-{index}": float(index) for index in range(9)}
count = 0


@torch.compile(backend="eager")
def adapt(x, domain):
    return x * SCALES[domain]


def step():
    global count
    count += 1
    return adapt(torch.ones(4), f"domain-{count % 9}")
