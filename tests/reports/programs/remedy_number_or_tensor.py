"""A blend takes its weight as an int first, as a float in a second phase, and as a tensor at the end."""

import os

import torch

count = 0


@torch.compile(backend="eager")
def blended(image, weight):
    return weight * image + (1 - weight) * image.flip(0)


def step():
    global count
    count += 1
    weight = 1 if count < 6 else 0.25 if count < 11 else torch.tensor(0.5)
    if os.environ.get("FIX"):
        weight = torch.as_tensor(weight, dtype=torch.float32)
    return blended(torch.ones(6), weight)
