"""A matmul, a bias and GELU. In mode default a library multiplies and one kernel does the rest."""

import torch
from torch.nn.functional import gelu

from kgprof.workloads.example import Compile, Shapes, Step, Strategy


def matmul_bias_gelu(shapes: Shapes, device: torch.device, compiled: Compile) -> Step:
    x = torch.randn(shapes.rows, shapes.inner, device=device)
    weight = torch.randn(shapes.inner, shapes.columns, device=device) / shapes.inner**0.5
    bias = torch.randn(shapes.columns, device=device)
    function = compiled(lambda x, weight, bias: gelu(torch.matmul(x, weight) + bias))
    return lambda: function(x, weight, bias)


STRATEGIES = {
    "matmul_bias_gelu": Strategy(
        matmul_bias_gelu,
        "gelu(x @ weight + bias): one kernel only where a template of max-autotune wins.",
    )
}
