"""One compiled function takes the network as an argument, and each network holds another float."""

import torch
from torch import nn


class Scaled(nn.Module):
    def __init__(self, gain):
        super().__init__()
        self.gain = gain

    def forward(self, x):
        return torch.tanh(x * self.gain)


@torch.compile(backend="eager")
def energy(network, x):
    return network(x).square().sum()


networks = [Scaled(0.1 + 0.3 * number) for number in range(5)]
points = torch.linspace(-1, 1, 16)
calls = 0


def step():
    global calls
    calls += 1
    return energy(networks[calls % 5], points)


if __name__ == "__main__":
    for _ in range(12):
        step()
