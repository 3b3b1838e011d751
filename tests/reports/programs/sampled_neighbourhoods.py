"""Attention over sampled neighbourhoods: each batch has other counts of nodes and edges."""

import torch
from torch_geometric.nn import GATv2Conv


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = GATv2Conv(6, 4, heads=2, edge_dim=3)
        self.second = GATv2Conv(8, 2, heads=1, edge_dim=3)

    def forward(self, x, edge_index, edge_attr):
        x = self.first(x, edge_index, edge_attr).relu()
        return self.second(x, edge_index, edge_attr)


def neighbourhood(nodes, edges):
    source = torch.arange(edges) * 7 % nodes
    target = torch.arange(edges) * 5 % nodes
    return torch.randn(nodes, 6), torch.stack([source, target]), torch.randn(edges, 3)


torch.manual_seed(10)
model = torch.compile(Net(), backend="aot_eager")
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
sizes = [(20, 60), (25, 71), (18, 55), (31, 90), (22, 64)]
for epoch in range(3):
    for nodes, edges in sizes:
        x, edge_index, edge_attr = neighbourhood(nodes, edges)
        optimizer.zero_grad()
        loss = model(x, edge_index, edge_attr).square().mean()
        loss.backward()
        optimizer.step()
    print(epoch, round(loss.item(), 3))
