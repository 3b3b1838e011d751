"""Spiking neurons keep their potential from step to step; a custom autograd.Function gives the spike a gradient."""

import torch
from torch import nn


class Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, potential, slope):
        ctx.save_for_backward(potential)
        ctx.slope = slope
        return (potential > 0).to(potential.dtype)

    @staticmethod
    def backward(ctx, gradient):
        (potential,) = ctx.saved_tensors
        return gradient / (1 + ctx.slope * potential.abs()) ** 2, None


class Neurons(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.synapses = nn.Linear(inputs, outputs)
        self.potential = None
        self.slope = 25

    def forward(self, x):
        if self.potential is None:
            self.potential = torch.zeros(x.shape[0], self.synapses.out_features)
        self.potential = 0.9 * self.potential.detach() + self.synapses(x)
        spike = Spike.apply(self.potential - 1.0, self.slope)
        self.potential = self.potential - spike.detach()
        return spike


torch.manual_seed(6)
neurons = Neurons(5, 7)
fire = torch.compile(neurons, backend="aot_eager")
optimizer = torch.optim.Adam(neurons.parameters(), lr=0.01)


def step():
    optimizer.zero_grad()
    neurons.potential = None
    rate = torch.stack([fire(torch.ones(3, 5) * (1 + time)) for time in range(4)]).mean()
    loss = (rate - 0.2).square()
    loss.backward()
    optimizer.step()
    return loss.detach()


if __name__ == "__main__":
    for _ in range(6):
        step()
