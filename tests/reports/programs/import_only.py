"""What is compiled at import is used by no step: the steps themselves run eagerly."""

import torch


@torch.compile(backend="eager")
def table_of(size: int) -> torch.Tensor:
    return torch.arange(size).outer(torch.arange(size))


table = table_of(6)


def step() -> torch.Tensor:
    return table.float().log1p()
