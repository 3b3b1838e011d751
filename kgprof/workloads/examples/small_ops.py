"""Many small layers on a small batch: each kernel is over before the next one is launched."""

import torch
from torch import nn

from kgprof.workloads.example import Compile, Shapes, Step, Strategy


class ManySmallOps(nn.Module):
    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def layers(shapes: Shapes, device: torch.device, compiled: Compile) -> Step:
    model = compiled(ManySmallOps(shapes.layers, shapes.width).to(device).requires_grad_(False))
    x = torch.randn(shapes.batch, shapes.width, device=device)
    return lambda: model(x)


STRATEGIES = {"layers": Strategy(layers, "Linear and ReLU, one after the other.")}
