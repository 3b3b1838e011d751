"""A critic is kept smooth by a penalty on the gradient of its score, and the critic is compiled."""

import torch
from torch import nn


def penalty(critic, real, fake):
    share = torch.rand(real.shape[0], 1)
    between = (share * real + (1 - share) * fake).requires_grad_()
    slope = torch.autograd.grad(critic(between).sum(), between, create_graph=True)[0]
    return (slope.norm(dim=1) - 1).square().mean()


def main():
    torch.manual_seed(5)
    layers = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
    critic = torch.compile(layers, backend="aot_eager")
    optimizer = torch.optim.Adam(layers.parameters(), lr=1e-3, betas=(0.5, 0.9))
    for number in range(20):
        real, fake = torch.randn(32, 2), torch.rand(32, 2)
        loss = critic(fake).mean() - critic(real).mean() + 10 * penalty(critic, real, fake)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(number, f"{loss.item():.4f}")


if __name__ == "__main__":
    main()
