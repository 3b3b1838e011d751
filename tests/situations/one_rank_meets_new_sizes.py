"""Two ranks train one compiled network; only rank 1's clips have other lengths, so it recompiles.

Truth: rank 0 waits while rank 1 compiles; both take equally long for a usual step.
FIX=1: rank 1 pads its clips to one length. Start: torchrun --nproc-per-node 2.
"""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

FIX = os.environ.get("FIX") == "1"
LONGEST = 192


class Listener(nn.Module):
    """Tells a speaker from a clip of sound."""

    def __init__(self) -> None:
        super().__init__()
        self.into = nn.Linear(80, 512)
        self.layers = nn.ModuleList(nn.Linear(512, 512) for _ in range(6))
        self.out = nn.Linear(512, 40)

    def forward(self, clip: torch.Tensor) -> torch.Tensor:
        heard = self.into(clip)
        for layer in self.layers:
            heard = F.layer_norm(F.gelu(layer(heard)) + heard, (512,))
        return self.out(heard.mean(1))


dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(rank)
torch.manual_seed(13)
compiled = torch.compile(Listener().cuda(), dynamic=False)
listener = DistributedDataParallel(compiled, device_ids=[rank])
optimizer = torch.optim.AdamW(listener.parameters(), lr=1e-3, fused=True)
started = time.perf_counter()
for i in range(70):
    length = LONGEST
    if rank == 1 and i >= 10 and i % 10 == 0:
        length = LONGEST - i
    clips = torch.randn(64, length, 80, device="cuda")
    if FIX:
        clips = F.pad(clips, (0, 0, 0, LONGEST - length))
    speakers = torch.randint(0, 40, (64,), device="cuda")
    loss = F.cross_entropy(listener(clips), speakers)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
torch.cuda.synchronize()
print(f"rank {rank}: {time.perf_counter() - started:.2f} s in all")
dist.destroy_process_group()
