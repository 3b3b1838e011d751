"""A whole evaluation is decorated with the stance force_eager, which somebody forgot after debugging."""

import torch

torch.manual_seed(0)
net = torch.compile(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()), backend="eager")


@torch.compiler.set_stance("force_eager")
def evaluate(batch):
    return net(batch).sum()


def step():
    return evaluate(torch.ones(2, 4))
