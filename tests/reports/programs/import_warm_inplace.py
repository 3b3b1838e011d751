"""A serving module compiles its network in place and warms it up while it is imported; nothing is wrong."""

import torch

torch.manual_seed(3)


class Gate(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = torch.nn.Linear(width, 2 * width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        value, gate = self.mix(tokens).chunk(2, dim=-1)
        return value * torch.sigmoid(gate)


gate = Gate(12).eval()
gate.compile(backend="aot_eager")
tokens = torch.randn(6, 12)
with torch.inference_mode():
    for _ in range(3):
        gate(tokens)


def step() -> torch.Tensor:
    with torch.inference_mode():
        return gate(tokens)
