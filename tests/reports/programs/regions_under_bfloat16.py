"""Accelerate is asked to compile the repeated blocks of a model and to train it in bfloat16."""

import os

import torch
from accelerate import Accelerator
from accelerate.utils import TorchDynamoPlugin
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.mix = nn.Linear(8, 8)

    def forward(self, x):
        return x + nn.functional.gelu(self.mix(self.norm(x)))


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


torch.manual_seed(14)
regional = TorchDynamoPlugin(backend="aot_eager", use_regional_compilation=True)
precision = "no" if os.environ.get("FIX") else "bf16"
accelerator = Accelerator(cpu=True, mixed_precision=precision, dynamo_plugin=regional)
model = Stack()
model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.01))
x, labels = torch.randn(12, 8), torch.arange(12) % 2
for number in range(6):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), labels)
    accelerator.backward(loss)
    optimizer.step()
    print(number, round(loss.item(), 4))
