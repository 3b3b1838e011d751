"""A compiled Sequential is trained with a smaller last batch and evaluated without gradients after each epoch."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = DataLoader(TensorDataset(torch.randn(70, 6), torch.randn(70, 1)), batch_size=16)
model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))
net = torch.compile(model, backend="aot_eager")
opt = torch.optim.SGD(model.parameters(), lr=0.01)
for _epoch in range(4):
    net.train()
    for x, y in data:
        opt.zero_grad()
        loss = (net(x) - y).square().mean()
        loss.backward()
        opt.step()
    net.eval()
    with torch.no_grad():
        total = 0.0
        for x, y in data:
            total += (net(x) - y).square().mean().item()
    print(f"{total:.4f}")
