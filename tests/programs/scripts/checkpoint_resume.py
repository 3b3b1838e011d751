"""Train, save the compiled model's state, build it anew, strip ``_orig_mod.``, load it and go on."""

import os
import tempfile

import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
path = os.path.join(tempfile.mkdtemp(), "last.pt")
features = torch.randn(6, 8, 10, generator=torch.Generator().manual_seed(0)).to(device)
labels = torch.randint(0, 3, (6, 8), generator=torch.Generator().manual_seed(1)).to(device)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))

    def forward(self, x):
        return self.layers(x)


def build():
    torch.manual_seed(5)
    model = Classifier().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return model, optimizer


def train(model, optimizer, epochs):
    model.train()
    for epoch in range(epochs):
        total = torch.zeros((), device=device)
        for x, y in zip(features, labels, strict=True):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        print(f"epoch {epoch}: {total.item() / len(features):.4f}")


model, optimizer = build()
model = torch.compile(model, backend="eager")
train(model, optimizer, 2)
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)

model, optimizer = build()
checkpoint = torch.load(path, map_location=device)
unwanted_prefix = "_orig_mod."
state = {key.removeprefix(unwanted_prefix): value for key, value in checkpoint["model"].items()}
model.load_state_dict(state)
optimizer.load_state_dict(checkpoint["optimizer"])
model = torch.compile(model, backend="eager")
train(model, optimizer, 2)
