"""A sparse adjacency matrix is read in the middle of a compiled layer."""

import torch

torch.manual_seed(10)
adjacency = (torch.rand(12, 12) > 0.7).float().to_sparse()
weight = torch.randn(6, 6)


class Aggregate(torch.nn.Module):
    def forward(self, nodes):
        messages = torch.relu(nodes @ weight)
        collected = torch.sparse.mm(adjacency, messages)
        return collected / (1 + collected.abs())


layer = torch.compile(Aggregate(), backend="aot_eager")


def step():
    return layer(torch.ones(12, 6))
