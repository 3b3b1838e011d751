"""A script that hands its settings to its functions by way of __builtins__, which is the module in __main__."""

import torch

__builtins__.shift = 2.5
source = __loader__.get_source("__main__")


@torch.compile(backend="eager")
def moved(rows):
    return rows + shift  # noqa: F821


for _ in range(6):
    result = moved(torch.zeros(3))
print("moved by", float(result[0]), source.splitlines()[0][:8], __spec__)
