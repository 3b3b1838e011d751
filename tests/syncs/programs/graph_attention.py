"""Attention over the edges of a graph by a library that asks the index how many nodes there are, within an eager
model; neighbours are drawn by hand on the host."""

import torch
from geometrics.nn import EdgeAttention
from torch import nn

torch.manual_seed(0)
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
nodes, edges = torch.randn(30, 8), torch.randint(0, 30, (2, 90))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.ones(8))
        self.attention = EdgeAttention(8)
        self.head = nn.Linear(8, 1)

    def forward(self, x, edge_index):
        return self.head(self.attention(x * self.scale, edge_index))  # item 8 in 8 at geometrics


def neighbourhood(count):
    chosen = torch.randperm(edges.shape[1])[:count]
    kept = edges[:, chosen]
    first = int(kept.min())
    degrees = torch.bincount(kept[0], minlength=30)
    if degrees.max() > 20:
        kept = kept[:, : degrees.argmax().item()]
    return kept, first


model = Model().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(12):
    kept, first = neighbourhood(40)
    x, edge_index = nodes.to(device), kept.to(device)
    out = model(x, edge_index)
    positive = out[out > 0].sum()  # mask-index 8 in 8
    loss = positive + out.square().mean() + model.scale.sum().item()  # item 8 in 8
    optimizer.zero_grad()
    loss.backward()  # nonzero 8 in 8
    optimizer.step()
