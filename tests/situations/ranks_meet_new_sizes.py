"""Two ranks train side by side, and only rank 1's batches change their size: it compiles again and
again while rank 0 waits. FIX=1 pads them to one size."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FIX = os.environ.get("FIX") == "1"
dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(rank)
torch.manual_seed(0)
torch.set_float32_matmul_precision("high")
blocks = [layer for _ in range(5) for layer in (nn.Linear(1024, 1024), nn.SiLU())]
net = DistributedDataParallel(nn.Sequential(*blocks, nn.Linear(1024, 8)).cuda(), device_ids=[rank])
model = torch.compile(net, dynamic=False)
optimizer = torch.optim.AdamW(net.parameters(), fused=True)
began = time.perf_counter()
for step in range(60):
    size = 384
    if rank == 1 and step >= 10 and step % 8 == 0 and not FIX:
        size = 384 + 16 * step
    rows = torch.randn(size, 1024, device="cuda")
    loss = model(rows).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
torch.cuda.synchronize()
print(f"rank {rank}: {time.perf_counter() - began:.2f} s in all")
dist.destroy_process_group()
