"""Each of ten equal blocks is compiled by itself, in place, so that they share one graph."""

import torch


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.mix = torch.nn.Linear(width, width)

    def forward(self, hidden):
        return hidden + torch.nn.functional.silu(self.mix(self.norm(hidden)))


torch.manual_seed(4)
tower = torch.nn.ModuleList(Block(16) for _ in range(10))
for block in tower:
    block.compile()


def step():
    hidden = torch.ones(4, 16)
    for block in tower:
        hidden = block(hidden)
    return hidden.sum().backward()
