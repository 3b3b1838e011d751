"""Rank 1 leaves out the sum of a metric in one step, and rank 0 waits for it until torch's own time
limit; FIX=1 lets both take part."""

import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

FIX = os.environ.get("FIX") == "1"
dist.init_process_group("nccl", timeout=timedelta(seconds=25))
rank = dist.get_rank()
torch.cuda.set_device(rank)
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 4)).cuda()
model = torch.compile(net)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
for step in range(40):
    rows = torch.randn(256, 512, device="cuda")
    loss = model(rows).square().mean()
    optimizer.zero_grad()
    loss.backward()
    for parameter in net.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
    metric = loss.detach().clone()
    if FIX or rank == 0 or step != 25:
        dist.all_reduce(metric)
    if step % 10 == 0:
        print(rank, step, float(metric))
torch.cuda.synchronize()
dist.destroy_process_group()
