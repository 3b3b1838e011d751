"""A model trained by a small library: three breaks of three causes in three of its functions, behind one line."""

import torch
from shelf import fit

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
batches = [(torch.randn(16, 8), torch.randn(16, 1)) for _ in range(6)]


def main():
    losses = fit(model, batches, epochs=2)
    print(f"{losses[0]:.3f} -> {losses[-1]:.3f}")


if __name__ == "__main__":
    main()
