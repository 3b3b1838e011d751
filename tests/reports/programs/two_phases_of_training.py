"""An autoencoder is trained, then a classifier on its frozen codes, each with its own optimizer."""

import torch
from torch import nn

torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 6))
decoder = nn.Linear(6, 12)
classifier = nn.Linear(6, 4)
signals = torch.randn(16, 32, 12)
labels = signals[..., :4].argmax(-1)


@torch.compile(backend="eager")
def reconstruct(x: torch.Tensor) -> torch.Tensor:
    return decoder(encoder(x))


@torch.compile(backend="eager")
def classify(x: torch.Tensor) -> torch.Tensor:
    return classifier(encoder(x))


first = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], 1e-3)
for x in signals:
    first.zero_grad()
    nn.functional.mse_loss(reconstruct(x), x).backward()
    first.step()

encoder.requires_grad_(False)
second = torch.optim.Adam(classifier.parameters(), 1e-2)
for x, y in zip(signals, labels, strict=True):
    second.zero_grad()
    loss = nn.functional.cross_entropy(classify(x), y)
    loss.backward()
    second.step()
print(f"loss {loss.item():.3f}")
