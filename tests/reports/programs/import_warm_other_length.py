"""The module warms its classifier with three static lengths while it is imported, and the requests have two others."""

import torch
from torch import nn


class Sentiment(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(20, 4)
        self.label = nn.Linear(4, 2)

    def forward(self, tokens):
        pooled = self.words(tokens).mean(dim=0)
        return self.label(pooled)


model = Sentiment().eval()
model.forward = torch.compile(model.forward, backend="eager", dynamic=False)
with torch.no_grad():
    for length in (8, 16, 32):
        model(torch.zeros(length, dtype=torch.long))

requests = 0


def step():
    global requests
    requests += 1
    length = 11 if requests % 2 else 5
    with torch.no_grad():
        return model(torch.zeros(length, dtype=torch.long))


if __name__ == "__main__":
    for _ in range(8):
        step()
