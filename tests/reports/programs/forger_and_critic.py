"""A forger and a critic are trained by turns, and the critic's parameters are frozen in the forger's turn."""

import torch
from torch import nn

torch.manual_seed(9)
forger = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 4))
critic = nn.Sequential(nn.Linear(4, 8), nn.LeakyReLU(), nn.Linear(8, 1))


@torch.compile(backend="aot_eager")
def judge(sample):
    return critic(sample).mean()


first = torch.optim.Adam(forger.parameters(), lr=0.01)
second = torch.optim.Adam(critic.parameters(), lr=0.01)
falling = torch.optim.lr_scheduler.ExponentialLR(second, 0.9)
real = torch.randn(6, 4)


def step():
    critic.requires_grad_(True)
    second.zero_grad()
    gap = judge(forger(torch.ones(6, 2)).detach()) - judge(real)
    gap.backward()
    second.step()
    critic.requires_grad_(False)
    first.zero_grad()
    loss = -judge(forger(torch.ones(6, 2)))
    loss.backward()
    first.step()
    falling.step()
    return loss.detach()


if __name__ == "__main__":
    for _ in range(8):
        step()
