"""Codes of several voices are predicted together; the number of voices in a request is free."""

import torch
from torch import nn


class Predictor(nn.Module):
    def __init__(self, width=16, most=32):
        super().__init__()
        self.embed = nn.Embedding(64, width)
        self.place = nn.Embedding(12, width)
        self.out = nn.Linear(width, 64)
        self.register_buffer("positions", torch.arange(12).repeat(most, 1))

    def forward(self, codes, voices):
        x = self.embed(codes) + self.place(self.positions[:voices])
        return self.out(torch.nn.functional.silu(x))


def answer(predict, voices):
    codes = torch.randint(0, 64, (voices, 12))
    torch._dynamo.mark_dynamic(codes, 0)
    with torch.no_grad():
        return predict(codes, voices).argmax(-1)


def main():
    torch.manual_seed(25)
    model = Predictor()
    predict = torch.compile(model)
    total = 0
    for voices in (4, 7, 2, 9, 4, 12):
        total += answer(predict, voices).sum().item()
        print(voices, "voices:", total)


if __name__ == "__main__":
    main()
