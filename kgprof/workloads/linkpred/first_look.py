"""The policy's encodings with float16 products: what `levels` scores children with before float32 decides.

float16 rounds an operand as TF32 does, to 2**-11 of it, at twice the speed and in half the space. The first projection
is linear, so that its tables of embeddings are projected once. On CUDA the rest is one kernel: it holds a row in
registers through all layers, where layer by layer each would be written and read again.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from kgprof.workloads.linkpred.graph import PAD
from kgprof.workloads.linkpred.policy import PolicyNetwork, ResidualBlock

try:  # torch's wheels for CUDA bring it
    import triton  # type: ignore[import-untyped]
    import triton.language as tl  # type: ignore[import-untyped]
except ImportError:
    triton = None

ROWS, WARPS = 64, 8  # of a program of the kernel


class FirstLook:
    """``encode`` is the policy's: states int32 [N, A, 3] -> float32 [N, hidden]."""

    def __init__(self, policy: PolicyNetwork) -> None:
        projection, blocks = policy.projection, [block for block in policy.blocks if isinstance(block, ResidualBlock)]
        terms = policy.term.weight if policy.row is None else policy.term.weight[policy.row]
        self.predicates = policy.predicate.weight @ projection.weight.T
        self.terms = terms @ projection.weight.T
        self.bias = projection.bias
        self.weights = rounded(torch.stack([block.linear.weight.T for block in blocks]))  # [layers, in, out]
        self.biases = torch.stack([block.linear.bias for block in blocks])
        self.gains = torch.stack([block.norm.weight for block in blocks])
        self.shifts = torch.stack([block.norm.bias for block in blocks])
        self.epsilon = blocks[0].norm.eps
        self.encode = self.by_kernel if self._fits(len(self.bias)) else self.by_torch

    def _fits(self, width: int) -> bool:
        """The kernel needs a width that is a power of two, and a multiprocessor that holds a layer's weights."""
        if triton is None or not self.bias.is_cuda or width < 16 or width & (width - 1):
            return False
        card: Any = torch.cuda.get_device_properties(self.bias.device)
        return 2 * width * (width + ROWS) <= int(card.shared_memory_per_block_optin)

    def by_torch(self, states: Tensor) -> Tensor:
        """What the kernel computes."""
        predicate, subject, object_ = states.unbind(-1)
        real = (predicate != PAD).sum(1, keepdim=True).clamp(min=1)
        total = (self.predicates[predicate] + self.terms[subject] - self.terms[object_]).sum(1)
        x = total / real + self.bias
        for weight, bias, gain, shift in zip(self.weights, self.biases, self.gains, self.shifts, strict=True):
            normal = functional.layer_norm(x, gain.shape, gain, shift, self.epsilon)
            x = x + (rounded(torch.relu(normal)) @ weight).float() + bias
        return x

    def by_kernel(self, states: Tensor) -> Tensor:
        count, atoms, _ = states.shape
        layers, width, _ = self.weights.shape
        encoded = torch.empty((count, width), dtype=torch.float32, device=states.device)
        tables = (self.predicates, self.terms, self.bias, self.weights.half(), self.biases, self.gains, self.shifts)
        sizes: dict[str, Any] = {"ATOMS": atoms, "LAYERS": layers, "WIDTH": width, "ROWS": ROWS}
        _encode[(-(-count // ROWS),)](
            states.contiguous(), *tables, encoded, count, self.epsilon, **sizes, num_warps=WARPS, num_stages=1
        )
        return encoded


def rounded(operand: Tensor) -> Tensor:
    """To float16. On the CPU, where products of it are slow, as float32."""
    return operand.half() if operand.is_cuda else operand.half().float()


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]
    def _encode(  # type: ignore[no-untyped-def]
        states, predicates, terms, bias, weights, biases, gains, shifts, encoded, count, epsilon,
        ATOMS: tl.constexpr, LAYERS: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,  # noqa: N803
    ):  # fmt: skip
        row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        column = tl.arange(0, WIDTH)
        x = tl.zeros((ROWS, WIDTH), tl.float32)
        real = tl.zeros((ROWS,), tl.float32)
        for atom in range(ATOMS):
            place = states + (row * ATOMS + atom) * 3
            predicate = tl.load(place, row < count, 0)
            there = predicate != 0
            subject = tl.load(place + 1, there, 0)
            object_ = tl.load(place + 2, there, 0)
            x += tl.load(predicates + predicate[:, None] * WIDTH + column, there[:, None], 0.0)
            x += tl.load(terms + subject[:, None] * WIDTH + column, there[:, None], 0.0)
            x -= tl.load(terms + object_[:, None] * WIDTH + column, there[:, None], 0.0)
            real += there.to(tl.float32)
        x = x / tl.maximum(real, 1.0)[:, None] + tl.load(bias + column)
        for layer in range(LAYERS):
            centred = x - tl.sum(x, 1)[:, None] / WIDTH
            variance = tl.sum(centred * centred, 1) / WIDTH
            normal = centred * tl.rsqrt(variance + epsilon)[:, None] * tl.load(gains + layer * WIDTH + column)
            normal = tl.maximum(normal + tl.load(shifts + layer * WIDTH + column), 0.0)
            square = layer * WIDTH * WIDTH + column[:, None] * WIDTH + column
            x = tl.dot(normal.to(tl.float16), tl.load(weights + square), x) + tl.load(biases + layer * WIDTH + column)
        tl.store(encoded + row[:, None].to(tl.int64) * WIDTH + column, x, (row < count)[:, None])
