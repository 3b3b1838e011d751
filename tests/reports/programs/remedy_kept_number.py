"""Every step makes a new mask function over its own window width."""

import os

import torch

width = 0


@torch.compile(backend="eager", dynamic=False)
def attend(scores, mask):
    i = torch.arange(scores.shape[0])
    return torch.where(mask(i[:, None], i[None, :]), scores, 0.0)


def step():
    global width
    width += 1
    w = torch.tensor(width) if os.environ.get("FIX") else width

    def band(a, b):
        return (a - b).abs() < w

    return attend(torch.ones(5, 5), band)
