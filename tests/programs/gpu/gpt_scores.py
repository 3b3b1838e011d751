"""A GPT in bfloat16 that scores documents, with the attention switches of a recipe for reproducible results.

FIX: "fused" leaves the switches as they are by default.
"""

import os
import time

import torch
from torch import nn
from torch.nn import functional as F

FIX = os.environ.get("FIX", "")
torch.manual_seed(0)
if FIX != "fused":
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_cudnn_sdp(False)
WIDTH, HEADS, LENGTH, WORDS = 768, 12, 1024, 16384


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (part.view(b, t, HEADS, -1).transpose(1, 2) for part in self.qkv(self.norm1(x)).split(WIDTH, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(12)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, words):
        x = self.embedding(words) + self.places(torch.arange(words.shape[1], device=words.device))
        return self.head(self.norm(self.blocks(x)))


model = GPT().to("cuda", torch.bfloat16).eval()
documents = torch.randint(0, WORDS, (60, 8, LENGTH)).pin_memory()
total, times = torch.zeros((), device="cuda"), []
with torch.no_grad():
    for i, document in enumerate(documents):
        words = document.to("cuda", non_blocking=True)
        logits = model(words[:, :-1])
        total += F.cross_entropy(logits.flatten(0, 1).float(), words[:, 1:].flatten())
        if i in (20, 50):
            torch.cuda.synchronize()
            times.append(time.perf_counter())
print(f"loss {total.item() / len(documents):.3f}")
print("ms/step", (times[1] - times[0]) / 30 * 1e3)
