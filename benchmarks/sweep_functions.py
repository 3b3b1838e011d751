"""Nine steps, of which a sweep's verdict and break-even are checked by running them: sweep_check.py
--make.

In seven of them fusion saves much, so that compiling pays within seconds; in two a library does the
work.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

device = "cuda" if torch.cuda.is_available() else "cpu"
rows, columns = (4096, 4096) if device == "cuda" else (512, 1024)
torch.manual_seed(0)
x, y = torch.randn(rows, columns, device=device), torch.rand(rows, columns, device=device)
scale, bias = torch.rand(columns, device=device), torch.randn(columns, device=device)
weight = torch.randn(columns, columns, device=device) / columns**0.5
small = torch.randn(1024, device=device)
tall, wide = (
    torch.randn(rows // 2, columns, device=device),
    torch.randn(columns, rows // 2, device=device),
)


def polynomial() -> torch.Tensor:
    result = torch.ones_like(x)
    for _ in range(12):
        result = result * y + 0.5
    return result


def normalized() -> torch.Tensor:
    centred = (x - x.mean(-1, keepdim=True)) * torch.rsqrt(x.var(-1, keepdim=True) + 1e-5)
    return (functional.relu(centred * scale + bias) * y + x).clamp(-3, 3)


def softened() -> torch.Tensor:
    logits = x * 0.125 + bias
    weights = torch.exp(logits - logits.amax(-1, keepdim=True))
    return weights / weights.sum(-1, keepdim=True) * y


def many_small() -> torch.Tensor:
    result = small
    for number in range(300):
        result = result * 0.99 + number
    return result


def distances() -> torch.Tensor:
    apart = x - y
    return (
        (apart * apart + apart.abs() * scale - apart.clamp(min=0) * bias)
        .sqrt()
        .nan_to_num()
        .sum(-1)
    )


def mixed() -> torch.Tensor:
    first = torch.where(x > 0, x * y, x + y)
    second = torch.where(first > bias, first * scale, first - scale)
    return torch.where(second > 1, second.reciprocal(), second * second).sum(0)


def chained() -> torch.Tensor:
    result = x
    for _ in range(10):
        result = torch.relu(result * scale + bias)
    return result


def product() -> torch.Tensor:
    return tall @ wide


perceptron = nn.Sequential(nn.Linear(columns, columns), nn.ReLU(), nn.Linear(columns, columns)).to(
    device
)


@torch.no_grad()
def layers() -> torch.Tensor:
    made: torch.Tensor = perceptron(tall)
    return made


PAYS = ("polynomial", "normalized", "softened", "many_small", "distances", "mixed", "chained")
DOES_NOT = ("product", "layers")
