"""A helper that prints: two functions can go on behind it, a third calls it in a loop and is lost."""

import torch


def report(name, x):
    print(name, tuple(x.shape))
    return x * 2


def encode(x):
    return report("encoded", x.sin()) + 1


def refine(x):
    for _ in range(2):
        x = report("refined", x.cos()) - 1
    return x


encoder = torch.compile(encode, backend="eager")
refiner = torch.compile(refine, backend="eager")
for _ in range(6):
    rows = torch.linspace(0.0, 1.0, 8)
    refiner(encoder(rows))
