"""A training step of a tabular classifier: forward, loss, backward, clipping, AdamW and an average."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

FEATURES = 64
CATEGORIES = 20
CLASSES = 10
WIDTH = 320
BATCH = 256


class GatedBlock(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 2 * width)
        self.project = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        value, gate = self.expand(self.norm(x)).chunk(2, dim=-1)
        return x + self.project(self.dropout(value * torch.sigmoid(gate)))


class Classifier(nn.Module):
    def __init__(self, width=WIDTH, depth=1, dropout=0.1):
        super().__init__()
        self.numbers = nn.Linear(FEATURES, width)
        self.category = nn.Embedding(CATEGORIES, width)
        self.blocks = nn.Sequential(*[GatedBlock(width, dropout) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, numbers, category):
        x = F.relu(self.numbers(numbers) + self.category(category))
        return self.head(self.norm(self.blocks(x)))


def loss_of(model, batch):
    logits = model(batch["numbers"], batch["category"])
    loss = F.cross_entropy(logits, batch["label"], label_smoothing=0.05)
    penalty = logits.logsumexp(dim=-1).pow(2).mean()
    return loss + 1e-4 * penalty, logits


def make_batch(size):
    numbers = torch.randn(size, FEATURES)
    category = torch.randint(0, CATEGORIES, (size,))
    label = (numbers[:, :CLASSES].argmax(dim=-1) + category) % CLASSES
    return {"numbers": numbers, "category": category, "label": label}


@torch.no_grad()
def update_average(average, model, decay):
    pairs = zip(average.parameters(), model.parameters())
    for kept, current in pairs:
        kept.lerp_(current, 1 - decay)


torch.manual_seed(0)
model = Classifier()
average = copy.deepcopy(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
compiled_loss = torch.compile(loss_of)
batch = make_batch(BATCH)


def step():
    optimizer.zero_grad(set_to_none=True)
    loss, logits = compiled_loss(model, batch)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    optimizer.step()
    update_average(average, model, decay=0.99)
    accuracy = (logits.detach().argmax(dim=-1) == batch["label"]).float().mean()
    return {"loss": loss.detach(), "norm": norm, "accuracy": accuracy}
