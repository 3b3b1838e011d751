"""PyG's examples/gcn.py in short, on a random graph of Reddit's kind, made smaller."""

import os
import time

import torch
import torch.nn.functional as F
from torch_geometric.nn import GCNConv

FIX = os.environ.get("FIX", "")
if FIX == "tf32":
    torch.set_float32_matmul_precision("high")
torch.manual_seed(0)
device = torch.device("cuda")
x = torch.randn(60000, 602, device=device)
edge_index = torch.randint(0, 60000, (2, 1000000), device=device)
y = torch.randint(0, 41, (60000,), device=device)
mask = torch.rand(60000, device=device) < 0.3


class GCN(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = GCNConv(602, 512, cached=True, normalize=True)
        self.conv2 = GCNConv(512, 41, cached=True)

    def forward(self, x, edge_index):
        x = F.dropout(x, p=0.5, training=self.training)
        x = self.conv1(x, edge_index).relu()
        return self.conv2(F.dropout(x, p=0.5, training=self.training), edge_index)


model = GCN().to(device)
optimizer = torch.optim.Adam(
    [dict(params=model.conv1.parameters(), weight_decay=5e-4), dict(params=model.conv2.parameters(), weight_decay=0)],
    lr=0.01,
)


def train():
    model.train()
    optimizer.zero_grad()
    out = model(x, edge_index)
    loss = F.cross_entropy(out[mask], y[mask])
    loss.backward()
    optimizer.step()
    return float(loss)


times = []
for epoch in range(60):
    loss = train()
    if epoch in (15, 55):
        torch.cuda.synchronize()
        times.append(time.perf_counter())
print("loss", loss)
print("ms/step", (times[1] - times[0]) / 40 * 1e3)
