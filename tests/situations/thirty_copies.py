"""Each step sends 30 arrays of NumPy's to the GPU, one after the other; FIX=1 sends one block."""

import os
import time

import numpy as np
import torch
from torch import nn

FIX = os.environ.get("FIX") == "1"
torch.manual_seed(0)
torch.set_float32_matmul_precision("high")
random = np.random.default_rng(0)
features = [random.standard_normal((4096, 24), dtype=np.float32) for _ in range(30)]
net = nn.Sequential(nn.Linear(720, 1024), nn.ReLU(), nn.Linear(1024, 1)).cuda()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)
model = torch.compile(net)
block = torch.from_numpy(np.concatenate(features, axis=1)).pin_memory()
for step in range(200):
    if step == 50:
        torch.cuda.synchronize()
        began = time.perf_counter()
    if FIX:
        table = block.to("cuda", non_blocking=True)
    else:
        table = torch.cat([torch.from_numpy(column).to("cuda") for column in features], dim=1)
    loss = model(table).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
torch.cuda.synchronize()
print(f"{(time.perf_counter() - began) / 150 * 1e3:.2f} ms/step")
