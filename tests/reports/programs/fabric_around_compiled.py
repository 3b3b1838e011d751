"""Fabric sets up a model that was compiled before, with an optimizer, and trains it."""

import torch
from lightning_fabric import Fabric

torch.manual_seed(33)
fabric = Fabric(accelerator="cpu", devices=1)
network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.AdamW(network.parameters())
network, optimizer = fabric.setup(torch.compile(network, backend="aot_eager"), optimizer)
batch = torch.randn(6, 4)
for _ in range(10):
    optimizer.zero_grad()
    loss = network(batch).square().mean()
    fabric.backward(loss)
    optimizer.step()
