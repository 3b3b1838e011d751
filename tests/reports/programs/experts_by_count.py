"""A mixture of experts reads how many tokens each expert gets and splits the tokens by that."""

import os

import torch

if os.environ.get("FIX"):
    torch._dynamo.config.capture_scalar_outputs = True


class Experts(torch.nn.Module):
    def __init__(self, number):
        super().__init__()
        self.weights = torch.nn.Parameter(torch.randn(number, 4, 4))

    def forward(self, tokens, counts):
        tokens = tokens * 0.5
        pieces = torch.split(tokens, counts.tolist())
        return torch.cat(
            [piece @ weight for piece, weight in zip(pieces, self.weights, strict=True)]
        )


torch.manual_seed(35)
experts = torch.compile(Experts(3), backend="eager")
tokens = torch.randn(24, 4)
turn = 0


def step():
    global turn
    turn += 1
    first, second = 3 + turn % 7, 4 + turn % 5
    return experts(tokens, torch.tensor([first, second, 24 - first - second]))
