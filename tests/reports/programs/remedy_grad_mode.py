"""After six training steps the same compiled model is evaluated without gradients."""

import os

import torch

model = torch.compile(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()), backend="eager")
count = 0
if os.environ.get("FIX"):
    with torch.no_grad():
        model(torch.ones(2, 4))


def step():
    global count
    count += 1
    with torch.set_grad_enabled(count <= 6):
        return model(torch.ones(2, 4))
