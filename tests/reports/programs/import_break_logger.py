"""A logger call inside of a compiled network splits its graph; the network was warmed up while it was imported."""

import logging

import torch

log = logging.getLogger(__name__)


def report(hidden: torch.Tensor) -> torch.Tensor:
    log.warning("hidden has %s rows", hidden.shape[0])
    return hidden


class Tagger(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter, self.leave = torch.nn.Linear(7, 9), torch.nn.Linear(9, 2)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.leave(report(self.enter(words).relu()))


tagger = torch.compile(Tagger(), backend="aot_eager")
words = torch.rand(3, 7)
tagger(words)


def step() -> torch.Tensor:
    return tagger(words)
