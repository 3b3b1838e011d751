"""A causal attention block around scaled_dot_product_attention is one graph."""

import torch


class SelfAttention(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.project = torch.nn.Linear(width, 3 * width)
        self.merge = torch.nn.Linear(width, width)

    def forward(self, tokens):
        batch, length, width = tokens.shape
        parts = self.project(tokens).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return tokens + self.merge(mixed.transpose(1, 2).reshape(batch, length, width))


torch.manual_seed(3)
attention = torch.compile(SelfAttention(32, 4).eval())


@torch.no_grad()
def step():
    return attention(torch.randn(2, 10, 32))
