"""A backend that fails for every graph; torch is told to suppress its errors."""

import torch
import torch._dynamo

torch._dynamo.config.suppress_errors = True


def broken(graph, inputs):
    raise NotImplementedError("no kernel for this graph")


@torch.compile(backend=broken)
def shifted(rows):
    return rows + 3


def step():
    return shifted(torch.ones(4))


if __name__ == "__main__":
    for _ in range(6):
        step()
