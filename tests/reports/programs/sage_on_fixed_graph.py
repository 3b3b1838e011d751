"""A ready-made GraphSAGE is trained on one graph, compiled with the default backend."""

import torch
from torch_geometric.nn import GraphSAGE

torch.manual_seed(24)
network = torch.compile(GraphSAGE(5, 8, num_layers=2, out_channels=3))
optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
nodes = torch.randn(9, 5)
edges = torch.stack([torch.arange(9), torch.arange(9).roll(1)])
classes = torch.arange(9) % 3


def step():
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(network(nodes, edges), classes)
    loss.backward()
    optimizer.step()
