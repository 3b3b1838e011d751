"""A metric of a library in the loop, and a timer of the same library that keeps its tensors on the host."""

import torch
from meters import Accuracy, Throughput
from torch import nn


class Loop:
    def __init__(self, device):
        self.device = device
        self.model = nn.Linear(4, 3).to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.accuracy, self.throughput = Accuracy(), Throughput()

    def step(self, x, y):
        out = self.model(x)
        loss = nn.functional.cross_entropy(out, y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.accuracy.update(out, y)  # item 7 in 7 at meters
        self.throughput.update(len(y))


torch.manual_seed(0)
loop = Loop("cuda" if torch.cuda.is_available() else "cpu")
for _ in range(11):
    batch = torch.randn(8, 4, device=loop.device), torch.randint(0, 3, (8,), device=loop.device)
    loop.step(*batch)
print(loop.accuracy.compute(), loop.throughput.compute())
