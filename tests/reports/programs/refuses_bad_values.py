"""A physics loss raises when its input holds a value that is not a number, and so looks at each batch."""

import torch
from torch import nn

torch.manual_seed(21)
field = nn.Sequential(nn.Linear(2, 20), nn.Tanh(), nn.Linear(20, 1))
optimizer = torch.optim.Adam(field.parameters(), lr=1e-3)


@torch.compile(backend="aot_eager")
def residual(points):
    if torch.isnan(points).any():
        raise ValueError("a point is not a number")
    value = field(points)
    source = torch.sin(3 * points).sum(1, keepdim=True)
    return (value - source).square().mean()


def step():
    loss = residual(torch.rand(32, 2))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


if __name__ == "__main__":
    for _ in range(20):
        loss = step()
    print(f"{loss:.4f}")
