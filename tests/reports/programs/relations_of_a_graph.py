"""A layer of the library that has a weight per relation is compiled as a whole."""

import torch
from torch_geometric.nn import RGCNConv

torch.manual_seed(23)
layer = RGCNConv(6, 8, num_relations=3)
features = torch.randn(7, 6)
edges = torch.tensor([[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6]])
kinds = torch.tensor([0, 1, 2, 0, 1, 2])


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x, edges, kinds).relu()


encoder = torch.compile(Encoder(), backend="aot_eager")


def step():
    encoder(features).sum().backward()
