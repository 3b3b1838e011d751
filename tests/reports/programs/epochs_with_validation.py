"""A network with dropout and batch norm is trained for three steps and evaluated for two, again and again."""

import torch
from torch import nn

torch.manual_seed(5)
network = nn.Sequential(
    nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 2)
)
fast = torch.compile(network, backend="aot_eager")
optimizer = torch.optim.SGD(network.parameters(), lr=0.05)
x, labels = torch.randn(16, 4), torch.arange(16) % 2


def fit():
    network.train()
    for _ in range(3):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(fast(x), labels)
        loss.backward()
        optimizer.step()
    return loss.item()


@torch.no_grad()
def validate():
    network.eval()
    return sum((fast(x).argmax(1) == labels).float().mean().item() for _ in range(2)) / 2


for epoch in range(4):
    print(epoch, round(fit(), 4), validate())
