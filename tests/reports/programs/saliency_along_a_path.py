"""Integrated gradients of a compiled classifier: one batch for the path, one for its ends, then one with noise."""

import torch

torch.manual_seed(12)
layers = [torch.nn.Linear(10, 16), torch.nn.Softplus(), torch.nn.Linear(16, 3)]
classifier = torch.compile(torch.nn.Sequential(*layers).eval(), backend="aot_eager")


def gradient(points):
    points = points.detach().requires_grad_()
    chosen = classifier(points)[:, 1].sum()
    return torch.autograd.grad(chosen, points)[0]


def saliency(example, steps):
    path = torch.linspace(0, 1, steps)[:, None] * example
    return gradient(path).mean(0) * example


for _ in range(8):
    example = torch.rand(10)
    exact = saliency(example, 20)
    with torch.no_grad():
        ends = classifier(torch.stack((torch.zeros(10), example)))
    noisy = torch.stack([saliency(example + 0.1 * torch.randn(10), 12) for _ in range(3)])
    print(float((exact - noisy.mean(0)).abs().max()) < 1, ends.shape)
