"""A convolutional encoder whose channel counts are taken from the first batch, compiled after that batch."""

import torch
from torch import nn

torch.manual_seed(3)
encoder = nn.Sequential(
    nn.LazyConv2d(4, kernel_size=3),
    nn.LazyBatchNorm2d(),
    nn.ReLU(),
    nn.Flatten(),
    nn.LazyLinear(2),
)
pictures = torch.rand(5, 3, 8, 8)
with torch.no_grad():
    encoder(pictures)
optimizer = torch.optim.SGD(encoder.parameters(), lr=0.05)
scores = torch.compile(encoder, backend="aot_eager")


def step():
    loss = scores(pictures).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


if __name__ == "__main__":
    for _ in range(6):
        last = step()
    print("finite", bool(last.isfinite()))
