"""Two ranks on a CPU average their gradients. SITUATION says what rank 1 does longer: "compute",
"python" or "new_sizes" (it compiles again); nothing where it is "equal" or "many_operators" (both
ranks run a hundred small ones)."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SITUATION = os.environ.get("SITUATION", "equal")
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
torch.set_num_threads(1)
net = DistributedDataParallel(nn.Sequential(nn.Linear(256, 256), nn.SiLU(), nn.Linear(256, 8)))
model = net
if SITUATION == "new_sizes":
    model = torch.compile(net, backend="aot_eager", dynamic=False)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(45):
    size = 256
    if SITUATION == "new_sizes" and rank == 1 and step >= 5 and step % 5 == 0:
        size = 256 + step
    rows = torch.randn(size, 256)
    if SITUATION == "compute" and rank == 1:
        for _ in range(8):
            rows = rows @ torch.eye(256)
    if SITUATION == "python" and rank == 1:
        time.sleep(0.03)
    if SITUATION == "many_operators":
        for _ in range(100):
            rows = rows + 0.01
    loss = model(rows).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
