"""A reader yields float64 in some of the batches."""

import os

import torch

count = 0


@torch.compile(backend="eager")
def normalize(batch):
    return batch - batch.mean()


def step():
    global count
    count += 1
    batch = torch.ones(4, dtype=(torch.float32, torch.float64, torch.float16, torch.bfloat16)[count // 5 % 4])
    return normalize(batch.to(torch.float32) if os.environ.get("FIX") else batch)
