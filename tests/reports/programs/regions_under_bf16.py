"""Accelerate compiles the repeated blocks of a model that it has also put under bfloat16."""

import torch
from accelerate import Accelerator
from accelerate.utils import TorchDynamoPlugin


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = torch.nn.Linear(8, 8)

    def forward(self, x):
        return x + self.mix(x).relu()


class Tower(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block() for _ in range(3))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


torch.manual_seed(25)
plugin = TorchDynamoPlugin(backend="aot_eager", use_regional_compilation=True)
accelerator = Accelerator(cpu=True, mixed_precision="bf16", dynamo_plugin=plugin)
tower = accelerator.prepare(Tower())
for _ in range(8):
    accelerator.backward(tower(torch.ones(4, 8)).square().mean())
print("done")
