"""Classify the nodes of a random graph with a GCN, in the manner of PyG's examples/gcn.py."""

import torch
import torch.nn.functional as F
import torch_geometric
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

torch_geometric.seed_everything(12345)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
num_nodes, num_features, num_classes = 60, 12, 4
data = Data(
    x=torch.randn(num_nodes, num_features),
    edge_index=torch.randint(0, num_nodes, (2, 240)),
    y=torch.randint(0, num_classes, (num_nodes,)),
)
order = torch.randperm(num_nodes)
for name, chosen in {"train_mask": order[:30], "val_mask": order[30:45], "test_mask": order[45:]}.items():
    data[name] = torch.zeros(num_nodes, dtype=torch.bool)
    data[name][chosen] = True
data = data.to(device)


class GCN(torch.nn.Module):
    def __init__(self, in_channels, hidden_channels, out_channels):
        super().__init__()
        self.conv1 = GCNConv(in_channels, hidden_channels)
        self.conv2 = GCNConv(hidden_channels, out_channels)

    def forward(self, x, edge_index, edge_weight=None):
        x = F.dropout(x, p=0.5, training=self.training)
        x = self.conv1(x, edge_index, edge_weight).relu()
        x = F.dropout(x, p=0.5, training=self.training)
        return self.conv2(x, edge_index, edge_weight)


model = GCN(num_features, 16, num_classes).to(device)
model = torch_geometric.compile(model, backend="eager")
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)


def train():
    model.train()
    optimizer.zero_grad()
    out = model(data.x, data.edge_index, data.edge_attr)
    loss = F.cross_entropy(out[data.train_mask], data.y[data.train_mask])
    loss.backward()
    optimizer.step()
    return float(loss)


@torch.no_grad()
def test():
    model.eval()
    pred = model(data.x, data.edge_index, data.edge_attr).argmax(dim=-1)
    accs = []
    for mask in [data.train_mask, data.val_mask, data.test_mask]:
        accs.append(int((pred[mask] == data.y[mask]).sum()) / int(mask.sum()))
    return accs


best_val_acc = test_acc = 0
for epoch in range(1, 11):
    loss = train()
    train_acc, val_acc, tmp_test_acc = test()
    if val_acc > best_val_acc:
        best_val_acc = val_acc
        test_acc = tmp_test_acc
    print(f"Epoch: {epoch:03d}, Loss: {loss:.4f}, Train: {train_acc:.4f}, Val: {val_acc:.4f}, Test: {test_acc:.4f}")
