"""A server is warmed for the two sizes that it will get, and from then on nothing may compile."""

import torch


@torch.compile(backend="eager", dynamic=False)
def score(x):
    return (x * 2).exp()


served = 0


def step():
    global served
    served += 1
    if served == 3:
        torch.compiler.set_stance("eager_on_recompile")
    return score(torch.ones(4 + served % 2))
