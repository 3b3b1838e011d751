"""Accelerate compiles with dynamic=False, as the environment of its launcher asks, and five lengths arrive."""

import os

os.environ["ACCELERATE_DYNAMO_BACKEND"] = "AOT_EAGER"
os.environ["ACCELERATE_DYNAMO_USE_DYNAMIC"] = "True" if os.environ.get("FIX") else "False"

import torch
from accelerate import Accelerator


class Tagger(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(40, 8)
        self.mix = torch.nn.Linear(8, 8)

    def forward(self, words):
        return self.mix(self.embed(words)).cumsum(1).relu().mean((1, 2))


torch.manual_seed(14)
accelerator = Accelerator(cpu=True)
model = Tagger()
model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
for epoch in range(3):
    for length in (9, 14, 20, 27, 33):
        optimizer.zero_grad()
        loss = model(torch.arange(3 * length).reshape(3, length) % 40).sum()
        accelerator.backward(loss)
        optimizer.step()
print("done", round(loss.item(), 3))
