"""activations compiled one by one, a head copied"""
import copy

import torch
from torch import nn

torch.manual_seed(0)

class Act(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f
    def __call__(self, x):
        return self.f(x)

acts = [Act(torch.compile(g, backend="aot_eager")) for g in (torch.relu, torch.tanh, nn.functional.gelu)]
head = torch.compile(nn.Linear(4, 4), backend="aot_eager")
copied = copy.deepcopy(head)

def step():
    x = torch.randn(4, 4)
    for a in acts:
        x = a(x)
    return head(x) + copied(x)
