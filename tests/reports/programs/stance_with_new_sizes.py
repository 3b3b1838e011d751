"""After warm-up a stance forbids recompiles, and most requests have a length that was not compiled."""

import os

import torch


@torch.compile(backend="eager", dynamic=None if os.environ.get("FIX") else False)
def attend(q):
    return torch.softmax(q @ q.T, dim=-1)


requests = 0


def step():
    global requests
    requests += 1
    if requests == 3 and not os.environ.get("FIX"):
        torch.compiler.set_stance("eager_on_recompile")
    return attend(torch.ones(4 + requests % 4 * (requests > 2), 3))
