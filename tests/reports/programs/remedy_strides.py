"""Half of the batches arrive transposed."""

import os

import torch

count = 0


@torch.compile(backend="eager")
def smooth(image):
    return image + image.mean(0)


def step():
    global count
    count += 1
    image = torch.ones(4, 6) if count < 6 else torch.ones(6, 4).T
    if os.environ.get("FIX"):
        image = image.contiguous()
    return smooth(image)
