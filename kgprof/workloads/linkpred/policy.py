"""The policy network: it scores the children of a state, and the greedy choice takes the best.

An atom is embedded as in TransE (predicate + subject - object), a state is the masked mean of its
atoms, a projection and residual LayerNorm blocks encode it, and a child's logit is the dot product
of its encoding with its parent's over the square root of the width.

A greedy choice is only as reproducible as its ties. GEMMs round differently for other batch sizes,
kernels and devices, and a mean over atoms gives permuted states the same logit up to that noise. So
logits are rounded to ``ROUNDING`` of their dtype before they are compared, and the lowest index
wins: in float64 the grain is a million times the noise, which makes every strategy choose alike; in
float32 it only makes a flip rare, and flips are counted as near-ties (workload.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from kgprof.errors import InputError
from kgprof.workloads.linkpred.graph import PAD
from kgprof.workloads.linkpred.proof import State

# What a logit is rounded to. float32 noise is near 1e-6 for logits of order one; a grain of 100
# times that leaves one exact tie in a hundred open, a finer one leaves more.
ROUNDING = {torch.float64: 1e-9, torch.float32: 1e-4}


# Rows for the variables of a state, however many atoms it may have: so neither weights nor shapes
# depend on that cap. Up to 6 atoms each variable has its own; beyond that variable 13 shares the
# row of the first, and so on.
VARIABLES = 12


@dataclass(frozen=True, kw_only=True)
class PolicySizes:
    """``predicates`` and ``terms`` count table rows, PAD's row 0 among them; ``terms`` ends with
    the variables'."""

    predicates: int
    terms: int
    embedding: int
    hidden: int
    layers: int
    # of terms that states may hold, PAD among them; above ``terms`` the variables share rows
    names: int = 0


class Choice(NamedTuple):
    """``child`` int64 [B], the slot of the chosen one; ``nans`` int64 [B], the real children whose
    logit was NaN."""

    child: Tensor
    nans: Tensor


class ResidualBlock(nn.Module):
    """x + Linear(relu(LayerNorm(x)))."""

    def __init__(self, width: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, dtype=dtype)
        self.linear = nn.Linear(width, width, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.linear(torch.relu(self.norm(x)))  # type: ignore[no-any-return]


class PolicyNetwork(nn.Module):
    """Weights are drawn by a generator of their own, on the CPU and in float64: ``seed`` gives the
    same ones on every device, and float32's are float64's rounded."""

    scale: float
    # int64 [names], the table's row of each term, where the two are not the same
    row: Tensor | None

    def __init__(self, sizes: PolicySizes, dtype: torch.dtype, seed: int) -> None:
        super().__init__()
        self.sizes = sizes
        self.predicate = nn.Embedding(sizes.predicates, sizes.embedding, dtype=dtype)
        self.term = nn.Embedding(sizes.terms, sizes.embedding, dtype=dtype)
        row = torch.arange(sizes.names)
        first = sizes.terms - VARIABLES
        row = torch.where(row < first, row, first + (row - first) % VARIABLES)
        self.register_buffer("row", row if sizes.names > sizes.terms else None, persistent=False)
        self.projection = nn.Linear(sizes.embedding, sizes.hidden, dtype=dtype)
        self.blocks = nn.ModuleList(ResidualBlock(sizes.hidden, dtype) for _ in range(sizes.layers))
        self.scale = 1.0 / math.sqrt(sizes.hidden)
        self._draw(torch.Generator().manual_seed(seed))
        self.requires_grad_(False)
        self.clear_padding()

    def clear_padding(self) -> None:
        """PAD's rows are zero, whatever was drawn or loaded: PAD atoms do not count."""
        for table in (self.predicate, self.term):
            table.weight[PAD] = 0.0

    def _draw(self, generator: torch.Generator) -> None:
        """Embeddings N(0, 1), matrices N(0, 1 / fan-in), LayerNorm the identity, biases zero."""
        with torch.no_grad():
            for module in self.modules():
                if isinstance(module, nn.Embedding | nn.Linear):
                    fan_in = module.in_features if isinstance(module, nn.Linear) else 1
                    drawn = torch.randn(
                        module.weight.shape, generator=generator, dtype=torch.float64
                    )
                    module.weight.copy_(drawn / math.sqrt(fan_in))
                if isinstance(module, nn.Linear):
                    module.bias.zero_()

    def embed(self, atoms: Tensor) -> Tensor:
        """[..., 3] -> [..., embedding]."""
        predicate, subject, object_ = atoms.unbind(-1)
        if self.row is not None:
            subject = self.row[subject]
            object_ = self.row[object_]
        score: Tensor = self.predicate(predicate) + self.term(subject) - self.term(object_)
        return score

    def encode(self, states: Tensor) -> Tensor:
        """[..., A, 3] -> [..., hidden]. PAD atoms do not count; a state of PAD alone pools to
        zero."""
        real = (states[..., 0] != PAD).sum(-1, keepdim=True)
        # Atom by atom: an eager [..., A, embedding] would be written and read several times over,
        # and took four times as long on a CPU; compiled, both become one loop. PAD adds nothing,
        # for its row is zero.
        first, *others = states.unbind(-2)
        total = self.embed(first)
        for atom in others:
            total = total + self.embed(atom)
        encoded = self.projection(total / real.clamp(min=1))
        for block in self.blocks:
            encoded = block(encoded)
        return encoded  # type: ignore[no-any-return]

    def score(self, parent: Tensor, children: Tensor) -> Tensor:
        """[B, hidden] and [B, W, hidden] -> logits [B, W]."""
        return (children * parent.unsqueeze(1)).sum(-1) * self.scale

    def forward(self, states: Tensor, children: Tensor, count: Tensor) -> Tensor:
        """Logits [B, W] of ``children`` [B, W, A, 3] given ``states`` [B, A, 3]; -inf from
        ``count`` [B] on."""
        logits = self.score(self.encode(states), self.encode(children))
        return torch.where(real_children(children, count), logits, -math.inf)


def real_children(children: Tensor, count: Tensor) -> Tensor:
    """bool [B, W]: which of the W slots hold a child."""
    return torch.arange(children.shape[1], device=count.device) < count.unsqueeze(-1)


def choose(logits: Tensor) -> Choice:
    """The greedy choice: NaN counts as -inf, logits are rounded to ``ROUNDING``, the lowest index
    wins a tie.

    Padding is -inf and stands after the real children, so it is never chosen: every state has at
    least one child.
    """
    broken = logits.isnan()
    grains = torch.round(torch.where(broken, -math.inf, logits) / ROUNDING[logits.dtype])
    # argmax promises no index among ties on every device; the minimum over the winners does.
    slot = torch.arange(logits.shape[1], device=logits.device)
    winners = torch.where(grains == grains.amax(1, keepdim=True), slot, logits.shape[1] - 1)
    return Choice(winners.amin(1), broken.sum(1))


def choose_listed(logits: Tensor, parent: Tensor, parents: int) -> Choice:
    """``choose`` where the children of all parents stand in one list: ``logits`` [N], ``parent``
    int64 [N], those of a parent in order. ``child`` is a place of the list."""
    broken = logits.isnan()
    grains = torch.round(torch.where(broken, -math.inf, logits) / ROUNDING[logits.dtype])
    best = grains.new_full((parents,), -math.inf).scatter_reduce(0, parent, grains, "amax")
    place = torch.arange(len(logits), device=logits.device)
    winners = torch.where(grains == best[parent], place, len(logits))
    child = place.new_full((parents,), len(logits)).scatter_reduce(0, parent, winners, "amin")
    return Choice(child, torch.zeros_like(child).index_add(0, parent, broken.long()))


def load_weights(policy: PolicyNetwork, path: Path) -> None:
    """Fill ``policy`` from a ``state_dict`` file, converting to its dtype.

    Raises InputError for a file that is missing, is not a state_dict, or does not fit.
    """
    if not path.is_file():
        raise InputError(
            "file not found",
            path=path,
            hint="--policy takes a file that torch.save(state_dict) wrote",
        )
    try:
        weights = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch.load raises whatever the bytes provoke
        reason = str(error).partition("\n")[0]
        raise InputError(
            f"not a file that torch.load(weights_only=True) reads: {reason}", path=path
        ) from error
    if problem := _mismatch(weights, policy.state_dict()):
        hint = (
            "the weights must fit the data set and the options --embedding, --hidden and --layers"
        )
        raise InputError(problem, path=path, hint=hint)
    policy.load_state_dict(weights)
    policy.clear_padding()


def _mismatch(weights: object, expected: dict[str, Tensor]) -> str:
    """The first thing about ``weights`` that does not fit, or ''."""
    if not isinstance(weights, dict) or not all(map(torch.is_tensor, weights.values())):
        return "has no state_dict (a dict of tensors)"
    missing = sorted(expected.keys() - weights.keys())
    extra = sorted(map(str, weights.keys() - expected.keys()))
    if missing or extra:
        return (
            f"does not fit this policy: missing {missing or 'none'}, unexpected {extra or 'none'}"
        )
    for name, tensor in expected.items():
        if weights[name].shape != tensor.shape:
            return f"{name} has shape {list(weights[name].shape)}, expected {list(tensor.shape)}"
    return ""


class GreedyChooser:
    """The policy's choice for one state of proof.py at a time: what ``Prover.prove`` asks.

    ``nans`` and ``narrowest`` (the smallest gap between the two best logits of a state with several
    children, before rounding) accumulate until ``restart``.
    """

    def __init__(self, policy: PolicyNetwork, atoms: int) -> None:
        self.policy = policy
        self.atoms = atoms
        self.restart()

    def restart(self) -> None:
        self.nans = 0
        self.narrowest = math.inf

    def logits(self, parent: State, children: Sequence[State]) -> Tensor:
        """[1, children]."""
        pad: State = ((PAD, 0, 0),)
        padded = [state + pad * (self.atoms - len(state)) for state in (parent, *children)]
        encoded = self.policy.encode(torch.tensor(padded, dtype=torch.int32))
        return self.policy.score(encoded[:1], encoded[1:].unsqueeze(0))

    def __call__(self, parent: State, children: Sequence[State]) -> int:
        logits = self.logits(parent, children)
        choice = choose(logits)
        self.nans += int(choice.nans)
        if len(children) > 1:
            best, second = logits.nan_to_num(nan=-math.inf).topk(2).values[0].tolist()
            # Where both are infinite there is no gap: nothing but the index decides.
            self.narrowest = min(self.narrowest, best - second if best != second else 0.0)
        return int(choice.child)
