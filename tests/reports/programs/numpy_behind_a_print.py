"""NumPy code is compiled, and a print stands between its two halves."""

import numpy as np
import torch


@torch.compile(backend="eager")
def smooth(signal):
    power = signal**2
    print("smoothing", end="\r")
    return np.cumsum(power) / 2


for _ in range(10):
    smooth(np.arange(8.0))
