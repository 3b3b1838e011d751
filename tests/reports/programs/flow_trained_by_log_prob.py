"""A flow is compiled as a module, and trained by another method than forward."""

import os

import torch


class Flow(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Linear(4, 4)

    def forward(self, noise):
        return self.scale(noise).exp()

    def log_prob(self, data):
        return -(data - self.scale(data)).pow(2).sum(1)


flow = torch.compile(Flow(), backend="aot_eager")
if os.environ.get("FIX"):
    flow.log_prob = torch.compile(flow.log_prob, backend="aot_eager")
data = torch.linspace(0, 1, 32).reshape(8, 4)
steps = 0


def step():
    global steps
    steps += 1
    loss = -flow.log_prob(data).mean()
    loss.backward()
    if steps % 4 == 1:
        flow(torch.zeros(2, 4))
    return loss.detach()
