"""A GRU stands between two layers of a compiled tagger; torch does not trace recurrent modules by default."""

import os

import torch

if os.environ.get("FIX"):
    torch._dynamo.config.allow_rnn = True


class Labeler(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(20, 8)
        self.recurrent = torch.nn.GRU(8, 12, batch_first=True)
        self.score = torch.nn.Linear(12, 5)

    def forward(self, words):
        embedded = self.embed(words) * 0.5
        states, _ = self.recurrent(embedded)
        return self.score(states).argmax(-1)


torch.manual_seed(11)
labeler = torch.compile(Labeler().eval())


@torch.no_grad()
def step():
    return labeler(torch.arange(6).reshape(2, 3))
