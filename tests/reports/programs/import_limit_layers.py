"""Ten layers share one compiled forward, with a depth of its own each; the last two have no compiled code."""

import torch


class Scale(torch.nn.Module):
    def __init__(self, depth: int) -> None:
        super().__init__()
        self.depth = depth

    @torch.compile(backend="eager")
    def forward(self, stream: torch.Tensor) -> torch.Tensor:
        return stream * (1 + self.depth)


layers, stream = torch.nn.ModuleList(Scale(depth) for depth in range(10)), torch.ones(4)


def step() -> torch.Tensor:
    total = stream
    for layer in layers:
        total = total + layer(stream)
    return total


step()
