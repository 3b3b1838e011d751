"""The policy's encodings with float16 products: what `levels` scores children with before float32
decides.

float16 rounds an operand as TF32 does, to 2**-11 of it, at twice the speed and in half the space.
The first projection is linear, so that its tables of embeddings are projected once.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from kgprof.workloads.linkpred.graph import PAD
from kgprof.workloads.linkpred.policy import PolicyNetwork, ResidualBlock


class FirstLook:
    """``encode`` is the policy's: states int32 [N, A, 3] -> float32 [N, hidden]."""

    def __init__(self, policy: PolicyNetwork) -> None:
        projection = policy.projection
        blocks = [block for block in policy.blocks if isinstance(block, ResidualBlock)]
        terms = policy.term.weight if policy.row is None else policy.term.weight[policy.row]
        self.predicates = policy.predicate.weight @ projection.weight.T
        self.terms = terms @ projection.weight.T
        self.bias = projection.bias
        # [layers, in, out]
        self.weights = rounded(torch.stack([block.linear.weight.T for block in blocks]))
        self.biases = torch.stack([block.linear.bias for block in blocks])
        self.gains = torch.stack([block.norm.weight for block in blocks])
        self.shifts = torch.stack([block.norm.bias for block in blocks])
        self.epsilon = blocks[0].norm.eps

    def encode(self, states: Tensor) -> Tensor:
        predicate, subject, object_ = states.unbind(-1)
        real = (predicate != PAD).sum(1, keepdim=True).clamp(min=1)
        total = (self.predicates[predicate] + self.terms[subject] - self.terms[object_]).sum(1)
        x = total / real + self.bias
        layers = (self.weights, self.biases, self.gains, self.shifts)
        for weight, bias, gain, shift in zip(*layers, strict=True):
            normal = functional.layer_norm(x, gain.shape, gain, shift, self.epsilon)
            x = x + (rounded(torch.relu(normal)) @ weight).float() + bias
        return x


def rounded(operand: Tensor) -> Tensor:
    """To float16. On the CPU, where products of it are slow, as float32."""
    return operand.half() if operand.is_cuda else operand.half().float()


def apart(seen: Tensor, encoded: Tensor) -> Tensor:
    """The largest difference over the length of what was looked for."""
    shares = (seen - encoded).norm(dim=1) / encoded.norm(dim=1).clamp(min=1e-30)
    return torch.where(shares.isnan(), torch.inf, shares).amax()
