"""Layers with dropout are compiled one by one with the default backend, and recomputed in the backward pass."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Layer(nn.Module):
    def __init__(self, width=16, drop=0.2):
        super().__init__()
        self.up, self.down, self.drop = nn.Linear(width, 32), nn.Linear(32, width), nn.Dropout(drop)

    def forward(self, x):
        return x + self.drop(self.down(torch.sin(self.up(x))))


class Model(nn.Module):
    def __init__(self, layers=3):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(layers))

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return x


def main():
    torch.manual_seed(215)
    model = Model()
    for layer in model.layers:
        layer.compile()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(10):
        x = torch.randn(8, 16, requires_grad=True)
        loss = (model(x) - x.detach().flip(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}, gradient of the input {x.grad.norm():.3f}")


if __name__ == "__main__":
    main()
