"""The module also compiles a check with a print, which it runs once at import and no step runs."""

import torch


@torch.compile(backend="eager")
def sanity(sample: torch.Tensor) -> torch.Tensor:
    low = sample.min()
    print("lowest value known", end="\n")
    return sample - low


@torch.compile(backend="eager")
def normed(sample: torch.Tensor) -> torch.Tensor:
    return sample / sample.norm()


sample = torch.arange(1.0, 7.0)
sanity(sample)


def step() -> torch.Tensor:
    return normed(sample)
