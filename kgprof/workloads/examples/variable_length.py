"""A transformer block over batches of a quarter, a half, three quarters and all of ``batch``, in
turn."""

import functools

import torch
from torch.nn.functional import pad

from kgprof import model as m
from kgprof.workloads.example import Compile, Shapes, Step, Strategy
from kgprof.workloads.examples.transformer import blocks

SIZES = 4
MODES = (m.EAGER, "default", "reduce-overhead")


def build(
    shapes: Shapes,
    device: torch.device,
    compiled: Compile,
    *,
    dynamic: bool | None = None,
    to_largest: bool = False,
) -> Step:
    """``dynamic`` is torch.compile's own option."""
    model = compiled(blocks(shapes).to(device).requires_grad_(False), dynamic=dynamic)
    quarter = -(-shapes.batch // SIZES)
    full = quarter * SIZES
    row = (shapes.tokens, shapes.width)
    batches = [torch.randn(quarter * (number + 1), *row, device=device) for number in range(SIZES)]

    def step() -> list[torch.Tensor]:
        if not to_largest:
            return [model(batch) for batch in batches]
        padded = (pad(batch, (0, 0, 0, 0, 0, full - len(batch))) for batch in batches)
        return [
            model(whole)[: len(batch)].clone() for whole, batch in zip(padded, batches, strict=True)
        ]

    return step


STRATEGIES = {
    "automatic": Strategy(
        build, "As torch.compile does by itself: the second size makes it dynamic.", MODES
    ),
    "static": Strategy(
        functools.partial(build, dynamic=False), "dynamic=False: one graph for each size.", MODES
    ),
    "dynamic": Strategy(
        functools.partial(build, dynamic=True), "dynamic=True: one graph for all sizes.", MODES
    ),
    "padded": Strategy(
        functools.partial(build, dynamic=False, to_largest=True),
        "Each batch is padded to the largest: one static graph, and wasted work.",
        MODES,
    ),
}
