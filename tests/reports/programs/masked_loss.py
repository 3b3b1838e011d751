"""A compiled loss keeps only the valid positions, so its length depends on the labels."""

import os

import torch

if os.environ.get("FIX"):
    torch._dynamo.config.capture_dynamic_output_shape_ops = True

made = torch.Generator().manual_seed(3)
logits = torch.randn(32, 5, generator=made)
labels = torch.randint(-1, 5, (32,), generator=made)


@torch.compile(backend="eager")
def error_of(logits, labels):
    scores = torch.log_softmax(logits, dim=-1)
    picked = scores.gather(1, labels.clamp(min=0)[:, None])[:, 0]
    kept = picked.masked_select(labels >= 0)
    return -kept.mean()


def step():
    return error_of(logits, labels)


if __name__ == "__main__":
    for _ in range(6):
        step()
