"""A compiled function takes overlapping windows from a generator, whose end it notes by a print."""

import os

import torch


def windows(signal, width, hop):
    for start in range(0, signal.shape[0] - width + 1, hop):
        yield signal[start : start + width]
    if not os.environ.get("FIX"):
        print("end of the signal")


@torch.compile(backend="aot_eager")
def energy(signal):
    loudest = signal.new_zeros(())
    for window in windows(signal, 8, 4):
        loudest = torch.maximum(loudest, window.square().mean())
    return loudest / signal.square().mean()


def step():
    return energy(torch.linspace(-1, 1, 32))


if __name__ == "__main__":
    for _ in range(5):
        step()
