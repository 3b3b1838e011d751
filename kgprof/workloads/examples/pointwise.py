"""Elementwise functions of [rows, columns]: one kernel an operation in eager mode, one in all when
compiled."""

import functools
from collections.abc import Callable

import torch

from kgprof.workloads.example import Compile, Shapes, Step, Strategy


def sin_cos(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) + torch.cos(x)


def relu_of_sum(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.relu(x + 1)


def scaled_relu(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.relu(x + y) * 2


def build(
    function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    shapes: Shapes,
    device: torch.device,
    compiled: Compile,
) -> Step:
    x, y = (torch.randn(shapes.rows, shapes.columns, device=device) for _ in range(2))
    fused = compiled(function)
    return lambda: fused(x, y)


STRATEGIES = {
    "sin_cos": Strategy(
        functools.partial(build, sin_cos), "sin(x) + cos(x): three kernels against one."
    ),
    "relu_of_sum": Strategy(
        functools.partial(build, relu_of_sum), "relu(x + 1): two kernels against one."
    ),
    "scaled_relu": Strategy(
        functools.partial(build, scaled_relu), "relu(x + y) * 2: seven tensors moved against three."
    ),
}
