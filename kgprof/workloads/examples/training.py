"""A language model's training step, forward to optimizer, over random tokens."""

import functools

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

from kgprof import model as m
from kgprof.workloads.example import Compile, Shapes, Step, Strategy
from kgprof.workloads.examples.transformer import TransformerBlock

ACCUMULATED = 4  # parts that a batch is split into
MODES = (m.EAGER, "default", "max-autotune")


class LanguageModel(nn.Module):
    """[batch, tokens] of token numbers to [batch, tokens, vocabulary]."""

    def __init__(self, shapes: Shapes, *, recompute: bool) -> None:
        super().__init__()
        self.recompute = recompute
        self.embed = nn.Embedding(shapes.vocabulary, shapes.width)
        self.layers = nn.ModuleList(
            TransformerBlock(shapes.width, shapes.heads) for _ in range(shapes.layers)
        )
        self.output = nn.Linear(shapes.width, shapes.vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.recompute else layer(x)
        scores: torch.Tensor = self.output(x)
        return scores


def build(
    shapes: Shapes,
    device: torch.device,
    compiled: Compile,
    *,
    autocast: bool = False,
    parts: int = 1,
    compiled_optimizer: bool = False,
    recompute: bool = False,
) -> Step:
    model = LanguageModel(shapes, recompute=recompute).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    forward, update = (
        compiled(model),
        compiled(optimizer.step) if compiled_optimizer else optimizer.step,
    )
    parts = min(parts, shapes.batch)
    size = (shapes.batch, shapes.tokens)
    tokens, targets = (torch.randint(0, shapes.vocabulary, size, device=device) for _ in range(2))

    def step() -> torch.Tensor:
        total = torch.zeros((), device=device)
        for part, target in zip(tokens.chunk(parts), targets.chunk(parts), strict=True):
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=autocast):
                loss = cross_entropy(forward(part).flatten(0, 1), target.flatten()) / parts
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        update()
        optimizer.zero_grad(set_to_none=True)
        return total

    return step


STRATEGIES = {
    "float32": Strategy(build, "As it stands in eager mode; the model is what is compiled.", MODES),
    "autocast": Strategy(
        functools.partial(build, autocast=True), "Forward and backward in bfloat16.", MODES
    ),
    "accumulated": Strategy(
        functools.partial(build, parts=ACCUMULATED),
        "Gradients of parts of the batch, then one optimizer step.",
        MODES,
    ),
    "compiled_optimizer": Strategy(
        functools.partial(build, compiled_optimizer=True),
        "The optimizer's step is compiled too.",
        MODES,
    ),
    "recomputed": Strategy(
        functools.partial(build, recompute=True),
        "Each block keeps its input and runs again for its gradient.",
        MODES,
    ),
}
