"""A training step, its backward included, is compiled by two updates at import and never compiled again."""

import torch

weights = torch.nn.Parameter(torch.full((5, 3), 0.25))
rows, wanted = torch.arange(20.0).reshape(4, 5) / 20, torch.ones(4, 3)


@torch.compile(backend="aot_eager", fullgraph=True)
def loss(weights: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return ((rows @ weights).tanh() - wanted).square().mean()


def update() -> None:
    loss(weights, rows).backward()
    with torch.no_grad():
        weights.sub_(0.1 * weights.grad)
    weights.grad = None


for _ in range(2):
    update()

step = update
