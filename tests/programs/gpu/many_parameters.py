"""A deep narrow network with an optimizer written with a Python loop (foreach=False), as older code has it."""

import os
import time

import torch
from torch import nn

FIX = os.environ.get("FIX", "")
torch.manual_seed(0)
model = nn.Sequential(*(nn.Sequential(nn.Linear(512, 512), nn.LayerNorm(512), nn.GELU()) for _ in range(60))).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, **({"fused": True} if FIX == "fused" else {"foreach": False}))
x = torch.randn(256, 512, device="cuda")
times = []
for i in range(80):
    optimizer.zero_grad()
    loss = (model(x) - x).square().mean()
    loss.backward()
    optimizer.step()
    if i in (20, 70):
        torch.cuda.synchronize()
        times.append(time.perf_counter())
print("ms/step", (times[1] - times[0]) / 50 * 1e3)
