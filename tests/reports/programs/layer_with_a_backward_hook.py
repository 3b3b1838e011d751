"""Gradients of one layer are looked at by a backward hook, inside of a compiled model."""

import torch
from torch import nn

torch.manual_seed(4)
norms = []


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Linear(12, 24)
        self.tags = nn.Linear(24, 3)

    def forward(self, x):
        return self.tags(torch.tanh(self.words(x)))


def look(module, given, received):
    norms.append(received[0].norm())


model = Tagger()
model.words.register_full_backward_hook(look)
compiled = torch.compile(model, backend="aot_eager")


def step():
    model.zero_grad()
    compiled(torch.randn(8, 12)).square().mean().backward()
    return norms[-1].detach()


if __name__ == "__main__":
    for _ in range(12):
        step()
    print(len(norms))
