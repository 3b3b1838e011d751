"""A compiled force is differentiated by vmap over jacrev inside another compiled function."""

import torch
from torch.func import jacrev, vmap

spring = torch.tensor([1.0, 2.0, 0.5])


@torch.compile(backend="aot_eager")
def force(position):
    return -spring * position - 0.1 * position.pow(3)


@torch.compile(backend="aot_eager")
def stiffness(positions):
    return vmap(jacrev(force))(positions).diagonal(dim1=1, dim2=2).mean(0)


def step():
    positions = torch.arange(12.0).reshape(4, 3)
    return stiffness(positions) + force(positions[0])


if __name__ == "__main__":
    for _ in range(5):
        step()
