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
from kgprof.workloads.linkpred.unification import Engine

try:  # torch's wheels for CUDA bring it
    import triton  # type: ignore[import-untyped]
    import triton.language as tl  # type: ignore[import-untyped]
except ImportError:
    triton = None

ROWS, WARPS = 64, 8  # of a program of the first look
SPLIT_ROWS, SPLIT_WARPS = 64, 4  # and of the second


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

    def encode(self, states: Tensor) -> Tensor:
        predicate, subject, object_ = states.unbind(-1)
        real = (predicate != PAD).sum(1, keepdim=True).clamp(min=1)
        total = (self.predicates[predicate] + self.terms[subject] - self.terms[object_]).sum(1)
        x = total / real + self.bias
        for weight, bias, gain, shift in zip(self.weights, self.biases, self.gains, self.shifts, strict=True):
            normal = functional.layer_norm(x, gain.shape, gain, shift, self.epsilon)
            x = x + (rounded(torch.relu(normal)) @ weight).float() + bias
        return x


class Looks:
    """The kernels below for packed states; how many these are is read on the GPU."""

    def __init__(self, policy: PolicyNetwork, engine: Engine, differs: float) -> None:
        look = FirstLook(policy)
        device = look.bias.device
        full = torch.stack([block.linear.weight.T for block in policy.blocks]).contiguous()
        self.high = full.half()
        self.low = ((full - self.high) * 2048).half()
        self.tables = (look.predicates, look.terms, look.bias)
        self.others = (look.biases, look.gains, look.shifts)
        self.fields = (engine.field_word, engine.field_shift, engine.field_mask, look.epsilon)
        self.scale, self.reach = policy.scale, differs / (1 - differs) * policy.scale
        layers, width, _ = full.shape
        self.sizes: dict[str, Any] = {"ATOMS": engine.caps.atoms, "WORDS": len(engine.words), "LAYERS": layers, "WIDTH": width}
        self.width, self.programs = width, 1
        if device.type == "cuda":
            self.programs = torch.cuda.get_device_properties(device).multi_processor_count

    def first(
        self, children: Tensor, count: Tensor, parents: Tensor, sources: Tensor, encoded: Tensor, logits: Tensor,
        reaches: Tensor,
    ) -> None:  # fmt: skip
        """Logits of all children and what the first look may be off by."""
        self._look(children, children, count, parents, sources, encoded, logits, reaches, logits, held=False)

    def held(self, children: Tensor, kept: Tensor, count: Tensor, encoded: Tensor, apart: Tensor) -> None:
        """Raises ``apart`` to the largest difference of a first look."""
        self._look(children, kept, count, kept, kept, encoded, encoded, encoded, apart, held=True)

    def _look(self, children: Tensor, kept: Tensor, count: Tensor, *others: Tensor, held: bool) -> None:
        look[(self.programs,)](
            children, kept, count, *others, *self.tables, self.high, *self.others, *self.fields, self.scale,
            self.reach, **self.sizes, ROWS=ROWS, HELD=held, num_warps=WARPS, num_stages=1,
        )  # fmt: skip

    def second(self, children: Tensor, kept: Tensor, count: Tensor, room: int) -> Tensor:
        """Encodings of the first ``room`` that were kept, of which there are ``count``."""
        encoded = torch.empty((room, self.width), dtype=torch.float32, device=children.device)
        self._second(children, kept, count, encoded, encoded, held=False)
        return encoded

    def _second(self, children: Tensor, kept: Tensor, count: Tensor, encoded: Tensor, apart: Tensor, *, held: bool) -> None:
        second_look[(self.programs,)](
            children, kept, count, encoded, *self.tables, self.high, self.low, *self.others, *self.fields, apart,
            len(encoded), **self.sizes, ROWS=SPLIT_ROWS, HELD=held, num_warps=SPLIT_WARPS, num_stages=1,
        )  # fmt: skip


def rounded(operand: Tensor) -> Tensor:
    """To float16. On the CPU, where products of it are slow, as float32."""
    return operand.half() if operand.is_cuda else operand.half().float()


if triton is not None:

    @triton.jit
    def unpacked(key, field_word, field_shift, field_mask, field, wanted):
        """A field of packed states."""
        word = tl.load(key + tl.load(field_word + field), wanted, 0)
        return ((word >> tl.load(field_shift + field)) & tl.load(field_mask + field)).to(tl.int32)

    @triton.jit
    def pooled(
        key, there, predicates, terms, bias, field_word, field_shift, field_mask, column, ATOMS: tl.constexpr,
        WIDTH: tl.constexpr, PART: tl.constexpr, ROWS: tl.constexpr,
    ):  # fmt: skip
        x = tl.zeros((ROWS, PART), tl.float32)
        real = tl.zeros((ROWS,), tl.float32)
        for atom in range(ATOMS):
            predicate = unpacked(key, field_word, field_shift, field_mask, atom * 3, there)
            is_atom = predicate != 0
            first = unpacked(key, field_word, field_shift, field_mask, atom * 3 + 1, is_atom)
            second = unpacked(key, field_word, field_shift, field_mask, atom * 3 + 2, is_atom)
            x += tl.load(predicates + predicate[:, None] * WIDTH + column, is_atom[:, None], 0.0)
            x += tl.load(terms + first[:, None] * WIDTH + column, is_atom[:, None], 0.0)
            x -= tl.load(terms + second[:, None] * WIDTH + column, is_atom[:, None], 0.0)
            real += is_atom.to(tl.float32)
        return x / tl.maximum(real, 1.0)[:, None] + tl.load(bias + column)

    @triton.jit
    def encoded_from(
        x, weights, biases, gains, shifts, epsilon, column, LAYERS: tl.constexpr, WIDTH: tl.constexpr
    ):  # fmt: skip
        for layer in range(LAYERS):
            centred = x - tl.sum(x, 1)[:, None] / WIDTH
            variance = tl.sum(centred * centred, 1) / WIDTH
            normal = centred * tl.rsqrt(variance + epsilon)[:, None] * tl.load(gains + layer * WIDTH + column)
            normal = tl.maximum(normal + tl.load(shifts + layer * WIDTH + column), 0.0)
            square = layer * WIDTH * WIDTH + column[:, None] * WIDTH + column
            x = tl.dot(normal.to(tl.float16), tl.load(weights + square), x) + tl.load(biases + layer * WIDTH + column)
        return x

    @triton.jit
    def second_look(
        children, kept, counter, encoded, predicates, terms, bias, high, low, biases, gains, shifts, field_word,
        field_shift, field_mask, epsilon, apart, room, ATOMS: tl.constexpr, WORDS: tl.constexpr, LAYERS: tl.constexpr,
        WIDTH: tl.constexpr, ROWS: tl.constexpr, HELD: tl.constexpr,
    ):  # fmt: skip
        """Encodings of those that were kept, or HELD: how far such encodings are from float32's of all."""
        HALF: tl.constexpr = WIDTH // 2  # noqa: N806
        left = tl.arange(0, HALF)
        right = left + HALF
        count = tl.minimum(tl.load(counter), room)
        for block in range(tl.program_id(0), tl.cdiv(count, ROWS), tl.num_programs(0)):
            row = block * ROWS + tl.arange(0, ROWS)
            there = row < count
            child = tl.load(kept + row, there, 0)
            key = children + child.to(tl.int64) * WORDS
            x = pooled(key, there, predicates, terms, bias, field_word, field_shift, field_mask, left, ATOMS, WIDTH, HALF, ROWS)
            y = pooled(key, there, predicates, terms, bias, field_word, field_shift, field_mask, right, ATOMS, WIDTH, HALF, ROWS)
            for layer in range(LAYERS):
                mean = (tl.sum(x, 1) + tl.sum(y, 1)) / WIDTH
                variance = (tl.sum((x - mean[:, None]) * (x - mean[:, None]), 1) + tl.sum((y - mean[:, None]) * (y - mean[:, None]), 1)) / WIDTH
                root = tl.rsqrt(variance + epsilon)
                x_high, x_low = halved((x - mean[:, None]) * root[:, None], gains, shifts, layer * WIDTH + left)
                y_high, y_low = halved((y - mean[:, None]) * root[:, None], gains, shifts, layer * WIDTH + right)
                square = layer * WIDTH * WIDTH + left[:, None] * WIDTH + left
                x += product(x_high, x_low, y_high, y_low, high, low, square, HALF * WIDTH) + tl.load(biases + layer * WIDTH + left)
                y += product(x_high, x_low, y_high, y_low, high, low, square + HALF, HALF * WIDTH) + tl.load(biases + layer * WIDTH + right)
            place = encoded + row.to(tl.int64)[:, None] * WIDTH + left
            if HELD:
                a = tl.load(place, there[:, None], 0.0)
                b = tl.load(place + HALF, there[:, None], 0.0)
                away = tl.sum((x - a) * (x - a), 1) + tl.sum((y - b) * (y - b), 1)
                note(apart, away, tl.sum(a * a, 1) + tl.sum(b * b, 1), there)
            else:
                tl.store(place, x, there[:, None])
                tl.store(place + HALF, y, there[:, None])

    @triton.jit
    def halved(normal, gains, shifts, place):
        """relu(LayerNorm) as two float16 numbers: high + low / 2048."""
        normal = tl.maximum(normal * tl.load(gains + place) + tl.load(shifts + place), 0.0)
        high = normal.to(tl.float16)
        return high, ((normal - high.to(tl.float32)) * 2048.0).to(tl.float16)

    @triton.jit
    def product(x_high, x_low, y_high, y_low, high, low, square, half):
        """Half of the columns of a product; low times low is below float32's rounding."""
        upper = tl.load(high + square)
        lower = tl.load(high + square + half)
        total = tl.dot(x_low, upper)
        total = tl.dot(y_low, lower, total)
        total = tl.dot(x_high, tl.load(low + square), total)
        total = tl.dot(y_high, tl.load(low + square + half), total)
        return tl.dot(y_high, lower, tl.dot(x_high, upper, total * (1.0 / 2048.0)))

    @triton.jit
    def note(apart, away, squared, there):
        """The largest difference over the length of what was looked for, of their squares."""
        share = tl.sqrt(away) / tl.maximum(tl.sqrt(squared), 1e-30)
        share = tl.where(there, tl.where(share == share, share, float("inf")), 0.0)
        tl.atomic_max(apart, tl.max(share, 0))

    @triton.jit
    def look(
        children, kept, counter, parents, sources, encoded, logits, reaches, apart, predicates, terms, bias, weights,
        biases, gains, shifts, field_word, field_shift, field_mask, epsilon, scale, reach, ATOMS: tl.constexpr,
        WORDS: tl.constexpr, LAYERS: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, HELD: tl.constexpr,
    ):  # fmt: skip
        """Logits of all children and their reach, or HELD: how far those that were kept are from their encodings."""
        column = tl.arange(0, WIDTH)
        count = tl.load(counter)
        for block in range(tl.program_id(0), tl.cdiv(count, ROWS), tl.num_programs(0)):
            row = block * ROWS + tl.arange(0, ROWS)
            there = row < count
            child = row
            other = row
            if HELD:
                child = tl.load(kept + row, there, 0)
            else:
                other = tl.load(sources + tl.load(parents + row, there, 0), there, 0)
            key = children + child.to(tl.int64) * WORDS
            x = pooled(key, there, predicates, terms, bias, field_word, field_shift, field_mask, column, ATOMS, WIDTH, WIDTH, ROWS)
            x = encoded_from(x, weights, biases, gains, shifts, epsilon, column, LAYERS, WIDTH)
            others = tl.load(encoded + other.to(tl.int64)[:, None] * WIDTH + column, there[:, None], 0.0)
            squared = tl.sum(others * others, 1)
            if HELD:
                note(apart, tl.sum((x - others) * (x - others), 1), squared, there)
            else:
                tl.store(logits + row, tl.sum(x * others, 1) * scale, there)
                tl.store(reaches + row, tl.sqrt(tl.sum(x * x, 1) * squared) * reach, there)
