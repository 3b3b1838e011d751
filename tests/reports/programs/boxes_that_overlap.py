"""The box loss of a detector compares only those pairs of boxes that are long enough, chosen by a mask."""

import torch
from torch import nn


@torch.compile(backend="aot_eager")
def interval_loss(predicted, wanted, eps: float = 1e-6):
    low = torch.maximum(predicted[:, 0], wanted[:, 0])
    high = torch.minimum(predicted[:, 1], wanted[:, 1])
    common = torch.zeros_like(low)
    overlaps = high > low
    common[overlaps] = high[overlaps] - low[overlaps]
    length = (predicted[:, 1] - predicted[:, 0]) + (wanted[:, 1] - wanted[:, 0])
    return (1 - common / (length - common + eps)).mean()


torch.manual_seed(107)
head = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.AdamW(head.parameters(), lr=1e-2)


def step():
    features = torch.rand(24, 8)
    wanted = features[:, :2].cumsum(1)
    middle, size = head(features).unbind(1)
    size = nn.functional.softplus(size)
    predicted = torch.stack((middle - size / 2, middle + size / 2), 1)
    loss = interval_loss(predicted, wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


if __name__ == "__main__":
    for _ in range(20):
        loss = step()
    print(f"{loss:.3f}")
