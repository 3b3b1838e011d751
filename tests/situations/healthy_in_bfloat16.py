"""A compiled encoder trained in bfloat16 with a fused optimizer, and batches that fill the GPU.

Truth: the GPU is busy in more than 90 % of the step; there is nothing to do.
"""

import time

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(11)
WORDS, WIDTH = 16_000, 1536


class Layer(nn.Module):
    """Attention and a gated feed-forward network."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.project = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate = nn.Linear(WIDTH, 8 * WIDTH, bias=False)
        self.down = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        batch, length, _ = words.shape
        heads = self.project(self.before(words)).view(batch, length, 3, 12, 128)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        words = words + self.out(seen.transpose(1, 2).reshape(batch, length, WIDTH))
        gate, up = self.gate(self.between(words)).chunk(2, dim=-1)
        return words + self.down(F.silu(gate) * up)


model = nn.Sequential(
    nn.Embedding(WORDS, WIDTH), *(Layer() for _ in range(4)), nn.Linear(WIDTH, WORDS, bias=False)
)
model = model.cuda().to(torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
compiled = torch.compile(model)
text = torch.randint(0, WORDS, (16, 1025), device="cuda")
started = 0.0
for i in range(60):
    if i == 20:
        torch.cuda.synchronize()
        started = time.perf_counter()
    guesses = compiled(text[:, :-1])
    loss = F.cross_entropy(guesses.flatten(0, 1), text[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
torch.cuda.synchronize()
print(f"ms/step {(time.perf_counter() - started) / 40 * 1e3:.2f}")
