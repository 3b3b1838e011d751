"""A compiled training step of some hundred small kernels, which reads three numbers per step.

Truth: launching limits the step; the reads are a smaller part. FIX=1: mode="reduce-overhead", the
reads stay. FIX=reads: no reads, no CUDA graphs.
"""

import os
import time

import torch
from torch import nn
from torch.nn import functional as F

FIX = os.environ.get("FIX", "")


class Mixer(nn.Module):
    """Mixes time and channels of a sensor's signal."""

    def __init__(self, width: int, length: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.over_time = nn.Sequential(nn.Linear(length, 64), nn.SiLU(), nn.Linear(64, length))
        self.over_width = nn.Sequential(nn.Linear(width, 320), nn.SiLU(), nn.Linear(320, width))

    def forward(self, signal: torch.Tensor) -> torch.Tensor:
        mixed = self.over_time(self.first(signal).transpose(1, 2)).transpose(1, 2)
        signal = signal + mixed
        return signal + self.over_width(self.second(signal))


torch.manual_seed(3)
torch.set_float32_matmul_precision("high")
mixers = nn.Sequential(*(Mixer(160, 48) for _ in range(14)), nn.Flatten(), nn.Linear(160 * 48, 1))
mixers = mixers.cuda()
optimizer = torch.optim.AdamW(mixers.parameters(), lr=3e-4, fused=True)
compiled = torch.compile(mixers, mode="reduce-overhead" if FIX == "1" else None)
signals = torch.randn(24, 48, 160, device="cuda")
heights = torch.randn(24, 1, device="cuda")
history, started = [], 0.0
for i in range(240):
    if i == 60:
        torch.cuda.synchronize()
        started = time.perf_counter()
    loss = F.huber_loss(compiled(signals), heights)
    optimizer.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(mixers.parameters(), 2.0)
    if FIX != "reads":
        if not torch.isfinite(loss):
            raise SystemExit("the loss is not finite")
        history.append((loss.item(), norm.item()))
    optimizer.step()
torch.cuda.synchronize()
print(f"ms/step {(time.perf_counter() - started) / 180 * 1e3:.2f}")
