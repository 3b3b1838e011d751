"""LayerNorm, GELU, a scale and a bias over [batch, rows, width]: nothing but memory traffic."""

import torch
from torch import nn
from torch.nn.functional import gelu

from kgprof.workloads.example import Compile, Shapes, Step, Strategy


class FusionDemo(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer_norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return gelu(self.layer_norm(x)) * 1.2 + 0.1


def fusion(shapes: Shapes, device: torch.device, compiled: Compile) -> Step:
    model = compiled(FusionDemo(shapes.width).to(device).requires_grad_(False))
    x = torch.randn(shapes.batch, shapes.rows, shapes.width, device=device)
    return lambda: model(x)


STRATEGIES = {
    "fusion": Strategy(
        fusion, "Four operations, each of which reads and writes the whole tensor in eager mode."
    )
}
