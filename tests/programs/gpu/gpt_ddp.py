"""A small GPT trained by two processes with DistributedDataParallel, under autocast: torchrun --nproc-per-node 2 FILE

FIX: "compiled" in it has torch.compile on the wrapped model; "float32" in it takes autocast away.
"""

import os
import time

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FIX = os.environ.get("FIX", "")
RANK, CUDA = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.is_available()
torch.distributed.init_process_group("nccl" if CUDA else "gloo")
DEVICE = torch.device("cuda", RANK) if CUDA else torch.device("cpu")
if CUDA:
    torch.cuda.set_device(DEVICE)
WIDTH, HEADS, LENGTH, WORDS = (512, 8, 256, 4096) if CUDA else (32, 4, 16, 64)


class RMSNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        variance = x.pow(2).mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(variance + 1e-6)).type_as(x)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = RMSNorm(), RMSNorm()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (
            part.view(b, t, HEADS, -1).transpose(1, 2).reshape(b * HEADS, t, -1)
            for part in self.qkv(self.norm1(x)).split(WIDTH, -1)
        )
        scores = torch.bmm(q, k.transpose(1, 2)) / (WIDTH // HEADS) ** 0.5
        mixed = torch.bmm(scores.softmax(-1), v)
        x = x + self.out(mixed.view(b, HEADS, t, -1).transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.norm, self.head = RMSNorm(), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, words, targets):
        x = self.embedding(words)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return nn.functional.cross_entropy(logits.view(-1, WORDS), targets.reshape(-1))


torch.manual_seed(0)
model = DistributedDataParallel(GPT().to(DEVICE), device_ids=[RANK] if CUDA else None)
forward = torch.compile(model) if "compiled" in FIX else model
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
torch.manual_seed(RANK)
batch = torch.randint(0, WORDS, (8, LENGTH + 1))
times = []
for i in range(60):
    words = batch.to(DEVICE)
    with torch.autocast(DEVICE.type, dtype=torch.bfloat16, enabled="float32" not in FIX):
        loss = forward(words[:, :-1], words[:, 1:])
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if i % 10 == 0 and RANK == 0:
        print(f"{i} {loss.detach().float().cpu():.3f}")
    if i in (20, 50):
        loss.item()
        times.append(time.perf_counter())
if RANK == 0:
    print("ms/step", (times[1] - times[0]) / 30 * 1e3)
torch.distributed.destroy_process_group()
