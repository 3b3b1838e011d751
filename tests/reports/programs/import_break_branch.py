"""A branch on a value splits a compiled method; its class compiles and tries it before anybody takes a step."""

import torch


class Clipper:
    limit = 2.0

    def __init__(self) -> None:
        self.clip = torch.compile(self._clip, backend="eager")

    def _clip(self, gradient: torch.Tensor) -> torch.Tensor:
        size = gradient.square().sum()
        if size > self.limit:
            gradient = gradient / size
        return gradient + 1


clipper, gradient = Clipper(), torch.full((6,), 3.0)
tried = [clipper.clip(gradient) for _ in range(2)]


@torch.compile(backend="eager")
def accumulate(total: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
    return total.lerp(part, 0.5)


def step() -> torch.Tensor:
    return accumulate(gradient, clipper.clip(gradient))
