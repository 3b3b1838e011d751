"""Recommendations from a graph of users and items: two rounds of messages, then scores and a top ten."""

import torch
import torch.nn.functional as F
from torch import nn

USERS, ITEMS, EDGES = 400, 600, 16000
WIDTH = 64
TOP = 10


class GraphLayer(nn.Module):
    """Mean of the neighbours' messages, weighted by the kind of edge."""

    def __init__(self, width, kinds):
        super().__init__()
        self.message = nn.Linear(width, width)
        self.kind_gate = nn.Embedding(kinds, width)
        self.update = nn.Linear(2 * width, width)

    def forward(self, nodes, source, target, kind):
        gate = torch.sigmoid(self.kind_gate(kind))
        messages = F.relu(self.message(nodes))[source] * gate
        total = torch.zeros_like(nodes).index_add(0, target, messages)
        degree = torch.zeros(nodes.shape[0]).scatter_add(0, target, torch.ones(target.shape[0]))
        mean = total / degree.clamp(min=1.0)[:, None]
        return nodes + torch.tanh(self.update(torch.cat([nodes, mean], dim=-1)))


class Recommender(nn.Module):
    def __init__(self, width=WIDTH, kinds=4, rounds=2):
        super().__init__()
        self.user = nn.Embedding(USERS, width)
        self.item = nn.Embedding(ITEMS, width)
        self.item_bias = nn.Parameter(torch.zeros(ITEMS))
        self.layers = nn.ModuleList([GraphLayer(width, kinds) for _ in range(rounds)])

    def propagate(self, graph):
        nodes = torch.cat([self.user.weight, self.item.weight])
        for layer in self.layers:
            nodes = layer(nodes, graph["source"], graph["target"], graph["kind"])
        return nodes.split([USERS, ITEMS])

    def forward(self, graph, users, candidates):
        user_nodes, item_nodes = self.propagate(graph)
        chosen = user_nodes[users]
        found = item_nodes[candidates]
        scores = (chosen[:, None, :] * found).sum(dim=-1) / WIDTH**0.5
        scores = scores + self.item_bias[candidates]
        return torch.sigmoid(scores)


@torch.compile
def rerank(scores, age, already_seen):
    fresh = torch.exp(-0.1 * age)
    scores = scores * (0.5 + 0.5 * fresh)
    return scores.masked_fill(already_seen, 0.0)


def make_graph():
    user = torch.randint(0, USERS, (EDGES,))
    item = torch.randint(0, ITEMS, (EDGES,)) + USERS
    source = torch.cat([user, item])
    target = torch.cat([item, user])
    kind = torch.randint(0, 4, (2 * EDGES,))
    return {"source": source, "target": target, "kind": kind}


torch.manual_seed(0)
model = Recommender().eval()
score = torch.compile(model)
graph = make_graph()
users = torch.randint(0, USERS, (128,))
candidates = torch.randint(0, ITEMS, (128, 100))
age = torch.rand(128, 100) * 30
already_seen = torch.rand(128, 100) < 0.1


@torch.no_grad()
def step():
    scores = score(graph, users, candidates)
    scores = rerank(scores, age, already_seen)
    best = scores.topk(TOP, dim=-1)
    return candidates.gather(1, best.indices), best.values
