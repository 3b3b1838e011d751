"""Two marks between the parts of a compiled function, which a loop at the top of the module runs for its warm-up."""

import torch


@torch.compile(backend="eager")
def staged(block: torch.Tensor) -> torch.Tensor:
    squared = block @ block
    torch._dynamo.graph_break()
    mixed = squared.softmax(-1)
    torch._dynamo.graph_break()
    return mixed.sum(-1)


block = torch.eye(5)
for _ in range(4):
    staged(block)


def step() -> torch.Tensor:
    return staged(block)
