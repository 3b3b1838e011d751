"""A model with a Python condition: Dynamo traces the side that is taken, and guards on the bool."""

import torch
from torch import nn

from kgprof.workloads.example import Compile, Shapes, Step, Strategy


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear1, self.linear2, self.linear3 = (
            nn.Linear(10, 20),
            nn.Linear(20, 5),
            nn.Linear(20, 5),
        )

    def forward(self, x: torch.Tensor, condition: bool) -> torch.Tensor:
        x = torch.relu(self.linear1(x))
        if condition:
            return torch.sigmoid(self.linear2(x))
        return torch.tanh(self.linear3(x))


def both(shapes: Shapes, device: torch.device, compiled: Compile) -> Step:
    model = compiled(Branches().to(device).requires_grad_(False))
    x = torch.randn(shapes.batch, 10, device=device)
    return lambda: (model(x, True), model(x, False))


STRATEGIES = {
    "both": Strategy(
        both, "Each step takes both sides: two graphs of four operations, and one recompilation."
    )
}
