"""nn.Sequential.compile(): torch skips the forward of its own containers, so that nothing is compiled."""

import os

import torch

torch.manual_seed(0)
chain = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.Linear(3, 3))
if os.environ.get("FIX"):
    chain = torch.compile(chain, backend="eager")
else:
    chain.compile(backend="eager")
for _ in range(8):
    chain(torch.ones(2, 3))
