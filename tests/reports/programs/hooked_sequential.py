"""A gradient is watched by a backward hook of a module inside of a compiled nn.Sequential."""

import os

import torch

torch.manual_seed(3)
body = torch.nn.Sequential(torch.nn.Linear(5, 5), torch.nn.GELU(), torch.nn.Linear(5, 2))
sizes = []
if not os.environ.get("FIX"):
    body[2].register_full_backward_hook(lambda module, given, come: sizes.append(come[0].abs().max()))
compiled = torch.compile(body, backend="eager")


def step():
    out = compiled(torch.ones(3, 5))
    out.square().sum().backward()
    return out
