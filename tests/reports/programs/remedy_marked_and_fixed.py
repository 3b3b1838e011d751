"""A size is marked as dynamic although the weight fixes it."""

import os

import torch

weight = torch.ones(6, 6)
mark = torch._dynamo.maybe_mark_dynamic if os.environ.get("FIX") else torch._dynamo.mark_dynamic


@torch.compile(backend="eager")
def project(batch):
    scaled = batch * 2
    return scaled @ weight


def step():
    batch = torch.ones(3, 6)
    mark(batch, 1)
    return project(batch)
