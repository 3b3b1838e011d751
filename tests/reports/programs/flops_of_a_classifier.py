"""Every batch of a compiled classifier is counted by torch's FLOP counter."""

import torch
from torch.utils.flop_counter import FlopCounterMode

torch.manual_seed(0)
layers = (torch.nn.Linear(24, 48), torch.nn.GELU(), torch.nn.Linear(48, 5))
classifier = torch.compile(torch.nn.Sequential(*layers), backend="eager")
batch = torch.randn(6, 24)


def step() -> torch.Tensor:
    with FlopCounterMode(display=False):
        return classifier(batch)
