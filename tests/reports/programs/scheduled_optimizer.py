"""The optimizer and its scheduler step together in compiled code; the learning rate is a tensor (a recipe of torch)."""

import torch

torch.manual_seed(7)
layers = torch.nn.Sequential(torch.nn.Linear(24, 24, bias=False), torch.nn.Linear(24, 24, bias=False))
layers(torch.rand(24)).square().sum().backward()
optimizer = torch.optim.AdamW(layers.parameters(), lr=torch.tensor(0.02))
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=4)


@torch.compile
def advance():
    optimizer.step()
    scheduler.step()


for _ in range(8):
    advance()
