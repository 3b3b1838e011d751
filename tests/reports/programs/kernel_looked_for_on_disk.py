"""A norm comes from a package that looks for its kernel's file before it hands the kernel out."""

import functools
import os
import pathlib

import torch

HERE = pathlib.Path(__file__)


def norm(x):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def is_built():
    return HERE.exists()


@functools.cache
def kernel():
    if not is_built():
        raise RuntimeError("the kernel is not built")
    return norm


found = kernel()


def forward(x):
    chosen = found if os.environ.get("FIX") else kernel()
    return chosen(x + 1)


compiled = torch.compile(forward, backend="aot_eager")
x = torch.linspace(0, 1, 32).reshape(8, 4)


def step():
    return compiled(x)
