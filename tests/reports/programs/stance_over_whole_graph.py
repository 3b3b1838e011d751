"""A server that compiles one whole graph forbids recompiles after its warm-up, and then the beam width changes."""

import os

import torch


@torch.compile(fullgraph=True, dynamic=False, backend="eager")
def widen(hidden, beams):
    return hidden.repeat(beams, 1).cumsum(dim=0)


served = 0
hidden = torch.ones(2, 4)


def step():
    global served
    served += 1
    if served < 4:
        return widen(hidden, 3)
    stance = "default" if os.environ.get("FIX") else "eager_on_recompile"
    with torch.compiler.set_stance(stance):
        return widen(hidden, 5)


if __name__ == "__main__":
    for _ in range(10):
        step()
