"""OneCycleLR moves the momentum of a compiled Adam step as well as its learning rate."""

import os

import torch

weight = torch.nn.Parameter(torch.ones(8))
adam = torch.optim.Adam([weight], lr=torch.tensor(0.01))
schedule = torch.optim.lr_scheduler.OneCycleLR(
    adam, max_lr=0.1, total_steps=1000, cycle_momentum=not os.environ.get("FIX")
)


@torch.compile(backend="eager", dynamic=False)
def update():
    adam.step()


def step():
    weight.grad = torch.ones(8)
    update()
    schedule.step()
