"""Batches of molecules come from two workers, with other counts of atoms each; stdin may give the epochs."""

import sys

import torch
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GraphConv, global_mean_pool


class Energy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = GraphConv(5, 12)
        self.second = GraphConv(12, 12)
        self.head = torch.nn.Linear(12, 1)

    def forward(self, x, edge_index, batch):
        x = self.first(x, edge_index).relu()
        x = self.second(x, edge_index).relu()
        return self.head(global_mean_pool(x, batch))


def molecule(atoms):
    ring = torch.arange(atoms)
    edges = torch.stack([ring, ring.roll(1)])
    return Data(x=torch.randn(atoms, 5), edge_index=edges, y=torch.randn(1, 1))


def main():
    torch.manual_seed(11)
    epochs = int(sys.stdin.readline() or 2)
    molecules = [molecule(4 + 3 * (index % 7)) for index in range(34)]
    loader = DataLoader(molecules, batch_size=4, num_workers=2)
    model = torch.compile(Energy(), backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(epochs):
        total = 0.0
        for data in loader:
            optimizer.zero_grad()
            loss = (model(data.x, data.edge_index, data.batch) - data.y).square().mean()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: {total:.3f}")


if __name__ == "__main__":
    main()
