"""A ranking model copies 30 small columns from pageable memory to the GPU in every step.

Truth: the copies take most of the step. FIX=1: one pinned tensor holds all columns, one copy.
"""

import os
import time

import torch
from torch import nn

FIX = os.environ.get("FIX") == "1"
COLUMNS, ROWS = 30, 2048
torch.manual_seed(7)
scorer = nn.Sequential(nn.Linear(COLUMNS, 256), nn.ReLU(), nn.Linear(256, 1)).cuda().eval()
score = torch.compile(scorer)
columns = [torch.randn(ROWS) for _ in range(COLUMNS)]
table = torch.empty(COLUMNS, ROWS, pin_memory=True)
started = 0.0
with torch.no_grad():
    for i in range(400):
        if i == 100:
            torch.cuda.synchronize()
            started = time.perf_counter()
        if FIX:
            rows = torch.stack(columns, out=table).to("cuda", non_blocking=True)
        else:
            rows = torch.stack([column.to("cuda") for column in columns])
        best = score(rows.T).topk(10, dim=0)
torch.cuda.synchronize()
print(f"ms/step {(time.perf_counter() - started) / 300 * 1e3:.3f}")
