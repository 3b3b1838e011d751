"""A function with a gradient of its own reads a number in its forward pass."""

import torch


class Clip(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        limit = x.abs().max().item() * 0.5
        ctx.limit = limit
        return x.clamp(-limit, limit)

    @staticmethod
    def backward(ctx, grad):
        return grad.clamp(-ctx.limit, ctx.limit)


@torch.compile(backend="aot_eager")
def loss(x):
    x = x * 2
    x = Clip.apply(x)
    return x.sum()


x = torch.linspace(-1, 1, 7, requires_grad=True)


def step():
    loss(x).backward()
