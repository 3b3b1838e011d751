"""A solver asserts that its grid spans what is asked for, in one condition with `and`."""

import torch

ENDS = torch.tensor([0.0, 1.0])


@torch.compile(backend="aot_eager")
def solve(grid, start):
    assert grid[0] == ENDS[0] and grid[-1] == ENDS[1], "the grid is too short"  # noqa: PT018
    widths = grid[1:] - grid[:-1]
    return start * torch.exp(-widths.sum())


def step():
    return solve(torch.linspace(0, 1, 33), torch.ones(4))


if __name__ == "__main__":
    for _ in range(12):
        found = step()
    print(f"{found.sum():.4f}")
