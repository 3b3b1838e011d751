"""A tiny speech recogniser is trained on made-up spectrograms and letters, with model and loss compiled as one module."""

import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn


class Recogniser(nn.Module):
    def __init__(self, mels: int = 32, width: int = 96, letters: int = 29):
        super().__init__()
        self.down = nn.Conv1d(mels, width, 3, stride=2, padding=1)
        self.blocks = nn.ModuleList(nn.Conv1d(width, width, 7, padding=3, groups=8) for _ in range(4))
        self.norms = nn.ModuleList(nn.GroupNorm(4, width) for _ in range(4))
        self.out = nn.Linear(width, letters)

    def forward(self, sound):
        h = F.relu(self.down(sound))
        for block, norm in zip(self.blocks, self.norms):
            h = h + F.gelu(norm(block(h)))
        return self.out(h.transpose(1, 2)).log_softmax(-1)


class WithCriterion(nn.Module):
    def __init__(self, recogniser: nn.Module):
        super().__init__()
        self.recogniser = recogniser

    def forward(self, sound, letters, sound_lengths, letter_lengths):
        scores = self.recogniser(sound)
        steps = torch.div(sound_lengths + 1, 2, rounding_mode="floor")
        loss = F.ctc_loss(
            scores.transpose(0, 1),
            letters,
            steps,
            letter_lengths,
            zero_infinity=True,
        )
        entropy = -(scores.exp() * scores).sum(-1).mean()
        return loss - 0.01 * entropy


def batches(number: int, size: int):
    for _ in range(number):
        yield (
            torch.randn(size, 32, 120),
            torch.randint(1, 29, (size, 14)),
            torch.randint(90, 121, (size,)),
            torch.randint(6, 15, (size,)),
        )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=12)
    options = parser.parse_args()
    torch.manual_seed(1)
    recogniser = Recogniser()
    training = torch.compile(WithCriterion(recogniser), backend="aot_eager")
    optimizer = torch.optim.AdamW(recogniser.parameters(), lr=2e-3)
    began = time.perf_counter()
    for number, batch in enumerate(batches(options.steps, options.batch)):
        loss = training(*batch)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(recogniser.parameters(), 5.0)
        optimizer.step()
        if number % 20 == 19:
            print(f"{number + 1}: {loss.item():.3f}")
    print(f"{time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
