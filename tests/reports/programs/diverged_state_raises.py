"""A compiled integrator raises when its state is no longer finite, and the search over steps catches it."""

import torch


class Diverged(Exception):
    pass


@torch.compile(backend="eager")
def heun(state: torch.Tensor, width: torch.Tensor) -> torch.Tensor:
    slope = torch.sin(state) - 3 * state
    ahead = state + width * slope
    result = state + width * (slope + torch.sin(ahead) - 3 * ahead) / 2
    if not torch.isfinite(result).all():
        raise Diverged("the step is too wide")
    return result


def integrate(width: float) -> torch.Tensor:
    state = torch.linspace(-1, 1, 8)
    for _ in range(40):
        state = heun(state, torch.tensor(width))
    return state


for width in (4.0, 0.1, 2.0, 0.05):
    try:
        print(width, integrate(width).abs().max().item())
    except Diverged as error:
        print(width, error)
