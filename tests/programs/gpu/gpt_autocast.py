"""A small GPT trained under autocast, with RMS norms and attention as model repositories write them out.

FIX: "bf16", else float16 with a GradScaler; with "compiled" in it also torch.compile on the model.
"""

import os
import time

import torch
from torch import nn

FIX = os.environ.get("FIX", "")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WIDTH, HEADS, LENGTH, WORDS = (512, 8, 256, 4096) if DEVICE == "cuda" else (32, 4, 16, 64)


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
half = torch.bfloat16 if "bf16" in FIX or DEVICE == "cpu" else torch.float16
model = GPT().to(DEVICE)
forward = torch.compile(model) if "compiled" in FIX else model
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler(DEVICE, init_scale=2.0**10, enabled=half is torch.float16)
batch = torch.randint(0, WORDS, (8, LENGTH + 1))
times = []
for i in range(60):
    words = batch.to(DEVICE)
    with torch.autocast(DEVICE, dtype=half):
        loss = forward(words[:, :-1], words[:, 1:])
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    if i % 10 == 0:
        print(f"{i} {loss.detach().float().cpu():.3f}")
    if i in (20, 50):
        loss.item()
        times.append(time.perf_counter())
print("ms/step", (times[1] - times[0]) / 30 * 1e3)
