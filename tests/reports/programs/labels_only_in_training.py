"""A text model gets batches with labels in training, and few rows without labels to write from."""

import torch
from torch import nn

torch.manual_seed(3)


class Writer(nn.Module):
    def __init__(self):
        super().__init__()
        self.letters = nn.Embedding(40, 16)
        self.next = nn.Linear(16, 40)

    def forward(self, ids, labels=None):
        scores = self.next(self.letters(ids).cumsum(1))
        if labels is None:
            return scores
        return nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten())


model = torch.compile(Writer().requires_grad_(False), backend="aot_eager")


def train():
    ids = torch.randint(0, 40, (8, 13))
    return model(ids[:, :-1], ids[:, 1:])


def write():
    ids = torch.randint(0, 40, (3, 4))
    for _ in range(4):
        ids = torch.cat([ids, model(ids)[:, -1:].argmax(-1)], 1)
    return ids


if __name__ == "__main__":
    for number in range(14):
        train()
        if number == 9:
            write()
