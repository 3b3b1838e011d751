import torch

from geometrics.utils._softmax import softmax


class EdgeAttention(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.score = torch.nn.Linear(width, 1)

    def forward(self, x, edge_index):
        source, target = edge_index
        weights = softmax(self.score(x[source]).squeeze(-1), target)
        return torch.zeros_like(x).index_add(0, target, x[source] * weights[:, None])
