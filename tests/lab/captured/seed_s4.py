"""The compiled function that a diagnosis of a hanging CUDA graph was about, in the shapes of an H200's table."""

import torch
from torch.nn import functional

device = "cuda" if torch.cuda.is_available() else "cpu"
r1, r2 = torch.randn(256, 4096, device=device), torch.randn(256, 4096, device=device)


@torch.compile
def _fused_silu_mul(a, b):
    return (functional.silu(a) * b).half()


def fused_silu_mul():
    return _fused_silu_mul(r1, r2)
