"""Train a mixture of experts that picks each expert's tokens with a mask, as many first versions do."""

import torch
from torch import nn

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class MoE(nn.Module):
    def __init__(self, dim=16, experts=2):
        super().__init__()
        self.gate = nn.Linear(dim, experts)
        self.experts = nn.ModuleList([nn.Linear(dim, dim) for _ in range(experts)])

    def forward(self, x):
        weights, chosen = self.gate(x).softmax(dim=-1).max(dim=-1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            mask = chosen == number
            if mask.any():
                out[mask] = expert(x[mask]) * weights[mask].unsqueeze(-1)
        return out


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(8, 16)
        self.moe = MoE()
        self.out = nn.Linear(16, 1)

    def forward(self, x):
        x = torch.relu(self.inp(x))
        x = x + self.moe(x)
        return self.out(x)


model = Network().to(device)
model = torch.compile(model, backend="eager")
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(15):
    inputs = torch.randn(32, 8, device=device)
    loss = (model(inputs) - inputs.sum(dim=1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 5 == 0:
        print(step, loss.item())
