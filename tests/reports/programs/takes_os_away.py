"""A script that disables what it must not use, in builtins and in os, once its steps are made."""

import builtins
import os

import torch


@torch.compile(backend="eager")
def negated(rows):
    return -rows


for _ in range(6):
    negated(torch.ones(2))
print("steps made", flush=True)
for name in ("open", "len", "__import__", "print"):
    setattr(builtins, name, None)
for name in ("open", "write", "replace", "fork"):
    setattr(os, name, None)
