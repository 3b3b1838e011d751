"""Classify whole graphs in batches of changing size, in the manner of PyG's mutag_gin.py with dynamic=True."""

import torch
import torch.nn.functional as F
from torch_geometric import seed_everything
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import MLP, GINConv, global_add_pool

seed_everything(1)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def random_graph():
    nodes = int(torch.randint(5, 12, ()))
    edges = torch.randint(0, nodes, (2, 3 * nodes))
    return Data(x=torch.randn(nodes, 6), edge_index=edges, y=torch.randint(0, 2, (1,)))


dataset = [random_graph() for _ in range(48)]
train_loader = DataLoader(dataset[:32], batch_size=8, shuffle=True)
test_loader = DataLoader(dataset[32:], batch_size=8)


class GIN(torch.nn.Module):
    def __init__(self, in_channels, hidden_channels, out_channels, num_layers):
        super().__init__()
        self.convs = torch.nn.ModuleList()
        for _ in range(num_layers):
            mlp = MLP([in_channels, hidden_channels, hidden_channels])
            self.convs.append(GINConv(nn=mlp, train_eps=False))
            in_channels = hidden_channels
        self.mlp = MLP([hidden_channels, hidden_channels, out_channels], norm=None, dropout=0.5)

    def forward(self, x, edge_index, batch, batch_size):
        for conv in self.convs:
            x = conv(x, edge_index).relu()
        x = global_add_pool(x, batch, size=batch_size)
        return self.mlp(x)


model = GIN(6, 16, 2, 2).to(device)
model = torch.compile(model, backend="eager", dynamic=True)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)


def train():
    model.train()
    total_loss = 0
    for data in train_loader:
        data = data.to(device)
        optimizer.zero_grad()
        out = model(data.x, data.edge_index, data.batch, batch_size=data.num_graphs)
        loss = F.cross_entropy(out, data.y)
        loss.backward()
        optimizer.step()
        total_loss += float(loss) * data.num_graphs
    return total_loss / len(train_loader.dataset)


@torch.no_grad()
def test(loader):
    model.eval()
    total_correct = 0
    for data in loader:
        data = data.to(device)
        out = model(data.x, data.edge_index, data.batch, batch_size=data.num_graphs)
        pred = out.argmax(dim=-1)
        total_correct += int((pred == data.y).sum())
    return total_correct / len(loader.dataset)


for epoch in range(1, 5):
    loss = train()
    print(f"Epoch: {epoch:03d}, Loss: {loss:.4f}, Test: {test(test_loader):.4f}")
