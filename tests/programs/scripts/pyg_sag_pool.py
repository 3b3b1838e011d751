"""Classify graphs with attention convolutions and pooling, in the manner of PyG's examples/proteins_topk_pool.py."""

import torch
import torch.nn.functional as F
from torch.nn import Linear
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GATConv, TopKPooling
from torch_geometric.nn import global_max_pool as gmp
from torch_geometric.nn import global_mean_pool as gap

torch.manual_seed(0)


def make_graph(label):
    n = int(torch.randint(8, 14, (1,)))
    edges = torch.randint(0, n, (2, 3 * n))
    return Data(x=torch.randn(n, 8) + label, edge_index=edges, y=torch.tensor([label]))


dataset = [make_graph(i % 2) for i in range(96)]
train_loader = DataLoader(dataset[:80], batch_size=8, shuffle=True)
test_loader = DataLoader(dataset[80:], batch_size=8)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = GATConv(8, 16, heads=2, concat=False)
        self.pool1 = TopKPooling(16, ratio=0.8)
        self.conv2 = GATConv(16, 16, heads=2, concat=False)
        self.pool2 = TopKPooling(16, ratio=0.8)
        self.lin = Linear(32, 2)

    def forward(self, data):
        x, edge_index, batch = data.x, data.edge_index, data.batch
        x = F.relu(self.conv1(x, edge_index))
        x, edge_index, _, batch, _, _ = self.pool1(x, edge_index, None, batch)
        x1 = torch.cat([gmp(x, batch), gap(x, batch)], dim=1)
        x = F.relu(self.conv2(x, edge_index))
        x, edge_index, _, batch, _, _ = self.pool2(x, edge_index, None, batch)
        x2 = torch.cat([gmp(x, batch), gap(x, batch)], dim=1)
        return F.log_softmax(self.lin(x1 + x2), dim=-1)


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = Net().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.005)


def train():
    model.train()
    loss_all = 0
    for data in train_loader:
        data = data.to(device)
        optimizer.zero_grad()
        output = model(data)
        loss = F.nll_loss(output, data.y)
        loss.backward()
        loss_all += data.num_graphs * loss.item()
        optimizer.step()
    return loss_all / len(train_loader.dataset)


@torch.no_grad()
def test(loader):
    model.eval()
    correct = 0
    for data in loader:
        data = data.to(device)
        pred = model(data).max(dim=1)[1]
        correct += pred.eq(data.y).sum().item()
    return correct / len(loader.dataset)


for epoch in range(1, 4):
    loss = train()
    acc = test(test_loader)
    print(f"Epoch: {epoch:03d}, Loss: {loss:.5f}, Test Acc: {acc:.5f}")
