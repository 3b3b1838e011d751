"""A layer that must not be compiled stands first in a compiled container, and takes the others with it."""

import torch

torch.manual_seed(0)


class Logged(torch.nn.Module):
    @torch.compiler.disable
    def forward(self, x):
        return x * 2


chain = torch.nn.Sequential(Logged(), torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
fast = torch.compile(chain, backend="eager")
for _ in range(8):
    fast(torch.ones(2, 3))
