"""Transformer blocks with the norm before each part, as GPT-2 and the vision transformer have
them."""

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from kgprof.workloads.example import Compile, Shapes, Step, Strategy


class TransformerBlock(nn.Module):
    """[batch, tokens, width] to the same: attention among all tokens, then a network of four times
    the width."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        heads = self.qkv(self.norm1(x)).view(batch, tokens, 3, self.heads, width // self.heads)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, tokens, width)
        x = x + self.projection(mixed)
        out: torch.Tensor = x + self.mlp(self.norm2(x))
        return out


def blocks(shapes: Shapes) -> nn.Sequential:
    return nn.Sequential(
        *(TransformerBlock(shapes.width, shapes.heads) for _ in range(shapes.layers))
    )


def forward(shapes: Shapes, device: torch.device, compiled: Compile) -> Step:
    model = compiled(blocks(shapes).to(device).requires_grad_(False))
    x = torch.randn(shapes.batch, shapes.tokens, shapes.width, device=device)
    return lambda: model(x)


STRATEGIES = {"forward": Strategy(forward, "Inference over [batch, tokens, width].")}
