"""Few-shot regression by torch.func: each of 16 tasks takes three inner steps, and Adam one outer
step. Thousands of operators of a few microseconds each: what a listener of operators costs."""

import math

import torch
from torch.func import functional_call, grad

torch.manual_seed(0)
net = torch.nn.Sequential(
    torch.nn.Linear(1, 40),
    torch.nn.ReLU(),
    torch.nn.Linear(40, 40),
    torch.nn.ReLU(),
    torch.nn.Linear(40, 1),
)
outer = torch.optim.Adam(net.parameters(), lr=1e-3)


def error(weights, inputs, targets):
    return (functional_call(net, weights, (inputs,)) - targets).square().mean()


def error_after_inner_steps(weights, amplitude, phase):
    inputs = torch.rand(2, 10, 1) * 10 - 5
    targets = amplitude * torch.sin(inputs + phase)
    for _ in range(3):
        slopes = grad(error)(weights, inputs[0], targets[0])
        weights = {name: weight - 0.01 * slopes[name] for name, weight in weights.items()}
    return error(weights, inputs[1], targets[1])


for step in range(120):
    weights = dict(net.named_parameters())
    tasks = zip(torch.rand(16) * 4.9 + 0.1, torch.rand(16) * math.pi, strict=True)
    loss = torch.stack([error_after_inner_steps(weights, *task) for task in tasks]).mean()
    outer.zero_grad()
    loss.backward()
    outer.step()
    if step % 50 == 0:
        print(step, round(loss.item(), 3))
