"""A batch is a dataclass with tensors, the name of its source and its number of words; five sources take turns."""

import dataclasses

import torch


@dataclasses.dataclass(frozen=True)
class Batch:
    words: torch.Tensor
    source: str
    count: int


table = torch.nn.Embedding(30, 6)
weights = {"news": 1.0, "forum": 0.5, "books": 2.0}


@torch.compile(backend="eager")
def score(batch):
    vectors = table(batch.words)
    return vectors.sum() * weights.get(batch.source, 0.1) / batch.count


def batches():
    while True:
        for number, source in enumerate(("news", "forum", "books", "chat", "mail")):
            words = torch.arange(12).reshape(2, 6)
            yield Batch(words, source, 7 + number)


stream = batches()


def step():
    return score(next(stream))


if __name__ == "__main__":
    for _ in range(12):
        step()
