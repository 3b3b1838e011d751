"""A dynamically quantised stack of two layers is compiled."""

import warnings

import torch

warnings.filterwarnings("ignore")
torch.manual_seed(0)
stack = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 4)).eval()
small = torch.ao.quantization.quantize_dynamic(stack, {torch.nn.Linear}, dtype=torch.qint8)
fast = torch.compile(small, backend="eager")


def step():
    with torch.no_grad():
        return fast(torch.ones(2, 8))
