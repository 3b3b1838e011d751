"""Layers by the type of an edge that learn their input width in the first forward, each with a lazy running mean."""

import torch
from torch import nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter


class Relation(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.width = width
        self.weight = UninitializedParameter()
        self.register_buffer("mean", UninitializedBuffer())
        self._begin = self.register_forward_pre_hook(self.take_shape)

    def take_shape(self, module, arguments):
        (features,) = arguments
        if isinstance(self.weight, UninitializedParameter):
            self.weight.materialize((features.shape[-1], self.width))
            nn.init.constant_(self.weight, 0.1)
            self.mean.materialize((features.shape[-1],))
            self.mean.zero_()
        self._begin.remove()

    def forward(self, features):
        return (features - self.mean) @ self.weight


relations = nn.ModuleDict({"cites": Relation(4), "writes": Relation(4)})
graph = {"cites": torch.ones(3, 5), "writes": torch.ones(3, 7)}
# The shapes are unknown here: what is registered has none yet.
parameters = list(relations.parameters())
for name, features in graph.items():
    relations[name](features)


@torch.compile(backend="aot_eager")
def messages(cited, written):
    return relations["cites"](cited) + relations["writes"](written)


def step():
    return messages(graph["cites"], graph["writes"])


if __name__ == "__main__":
    for _ in range(6):
        total = step().sum()
    print("total", round(float(total.detach()), 1), "of", len(parameters), "weights")
