"""A compiled augmentation gets its steps as flags; in one call of nine none is set."""

import os

import torch

count = 0
FLAGS = [(True, True), (True, False), (False, True)]


@torch.compile(backend="eager")
def augmented(image, flipped, brighter):
    if flipped:
        image = image.flip(-1)
    if brighter:
        image = (image * 1.2).clamp(0, 1)
    return image


def step():
    global count
    count += 1
    image = torch.rand(3, 8, 8)
    flags = FLAGS[count % 3] if count != 9 else (False, False)
    if os.environ.get("FIX") and not any(flags):
        return image
    return augmented(image, *flags)
