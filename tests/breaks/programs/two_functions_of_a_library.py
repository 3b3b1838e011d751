"""Sentences of several lengths through two layers of a library that are compiled one by one, without dynamic shapes."""

import torch
from formers.modeling import Attention, Pooler

torch.manual_seed(0)
attention, pooler = Attention(8), Pooler(8)
attention.forward = torch.compile(attention.forward, backend="eager", dynamic=False)
pooler.forward = torch.compile(pooler.forward, backend="eager", dynamic=False)
model = torch.nn.Sequential(attention, pooler)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for length in (4, 4, 4, 4, 5, 5, 6, 6, 6, 4, 6, 6):
    loss = model(torch.randn(2, length, 8)).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
