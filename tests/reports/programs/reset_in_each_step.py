"""Each step starts afresh: torch.compiler.reset() and a module that is compiled again."""

import torch

torch.manual_seed(0)


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x).relu()


def step():
    torch.compiler.reset()
    net = torch.compile(Small(), backend="eager")
    return net(torch.ones(2, 4)), net(torch.ones(2, 4))
