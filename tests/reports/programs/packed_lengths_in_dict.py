"""A dictionary of packed sequences holds their longest length as an int, under dynamic=False."""

import os

import torch


class Packed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.query = torch.nn.Linear(4, 4)

    def forward(self, tokens, packed):
        weight = tokens.new_ones(()) / packed["longest"]
        return self.query(tokens) * weight


torch.manual_seed(29)
dynamic = None if os.environ.get("FIX") else False
attend = torch.compile(Packed(), backend="eager", dynamic=dynamic)
tokens = torch.randn(10, 4)
for longest in range(31, 45):
    attend(tokens, {"starts": torch.tensor([0, 4, 10]), "longest": longest})
