"""A replay buffer asks its own counter how full it is, through a property, and decides by the answer."""

import torch
from torch import nn

torch.manual_seed(2)


class Stock(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(6, 6)
        self.register_buffer("rows", torch.zeros(64, 6))
        self.register_buffer("filled", torch.zeros(2, dtype=torch.long))

    @property
    def size(self):
        return self.filled[0].item()

    def forward(self, x):
        x = self.mix(x).tanh()
        if self.size + x.shape[0] > self.rows.shape[0]:
            self.filled.zero_()
        self.rows[self.filled[0] + torch.arange(x.shape[0])] = x
        self.filled.add_(x.shape[0])
        return x + self.rows.sum(0)


stock = Stock().requires_grad_(False)
compiled = torch.compile(stock, backend="aot_eager")


def step():
    return compiled(torch.randn(5, 6))


if __name__ == "__main__":
    for _ in range(12):
        step()
