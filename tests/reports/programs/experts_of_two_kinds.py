"""Tokens of text and of pictures have experts of their own, and branches ask which there are."""

import torch
from torch import nn


class TwoExperts(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.understand = nn.Sequential(nn.Linear(width, 32), nn.SiLU(), nn.Linear(32, width))
        self.generate = nn.Sequential(nn.Linear(width, 32), nn.SiLU(), nn.Linear(32, width))

    def forward(self, x, picture):
        if not picture.any():
            return self.understand(x)
        if picture.all():
            return self.generate(x)
        out = torch.empty_like(x)
        out[picture] = self.generate(x[picture])
        out[~picture] = self.understand(x[~picture])
        return out


class Backbone(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(width), nn.Linear(width, width)
        self.experts = TwoExperts(width)

    def forward(self, x, picture):
        x = x + self.mix(self.norm(x))
        return x + self.experts(x, picture)


torch.manual_seed(220)
torch.set_num_threads(1)
backbone = torch.compile(Backbone().eval())
calls = 0


@torch.no_grad()
def step():
    global calls
    calls += 1
    picture = torch.arange(12) >= (12, 7, 0)[calls % 3]
    return backbone(torch.randn(12, 16), picture)


if __name__ == "__main__":
    for _ in range(20):
        step()
