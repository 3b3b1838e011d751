"""A model of torch's own layers is wrapped in DistributedDataParallel, compiled and trained by a single process."""

import os

import torch
from torch import distributed, nn

distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
torch.manual_seed(4)
trunk = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 3))
if os.environ.get("FIX"):
    trained = nn.parallel.DistributedDataParallel(torch.compile(trunk, backend="eager"))
else:
    trained = torch.compile(nn.parallel.DistributedDataParallel(trunk), backend="eager")
optimizer = torch.optim.SGD(trunk.parameters(), lr=0.1)

for _ in range(9):
    optimizer.zero_grad()
    trained(torch.ones(4, 12)).square().mean().backward()
    optimizer.step()
distributed.destroy_process_group()
