"""A compiled Linear gets a batch of another rank from the sixth step on, and another dtype once."""

import torch

layer = torch.compile(torch.nn.Linear(6, 2), backend="eager")
count = 0


def step():
    global count
    count += 1
    return layer(torch.ones(3, 6) if count < 6 else torch.ones(2, 3, 6))
