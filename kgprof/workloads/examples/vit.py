"""A vision transformer on [batch, 3, side, side] images, for classification."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from kgprof import model as m
from kgprof.workloads.example import Compile, Shapes, Step, Strategy
from kgprof.workloads.examples.transformer import blocks


class VisionTransformer(nn.Module):
    """[batch, 3, side, side] to [batch, classes]; the mean over patches stands for the class
    token."""

    def __init__(self, shapes: Shapes) -> None:
        super().__init__()
        patch = shapes.patch
        width = shapes.width
        self.patches = nn.Conv2d(3, width, kernel_size=patch, stride=patch)
        self.positions = nn.Parameter(0.02 * torch.randn((shapes.side // patch) ** 2, width))
        self.blocks = blocks(shapes)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, shapes.classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2) + self.positions
        classes: torch.Tensor = self.head(self.norm(self.blocks(x)).mean(dim=1))
        return classes


def _images(shapes: Shapes, device: torch.device) -> torch.Tensor:
    return torch.randn(shapes.batch, 3, shapes.side, shapes.side, device=device)


def inference(shapes: Shapes, device: torch.device, compiled: Compile) -> Step:
    model, images = (
        compiled(VisionTransformer(shapes).to(device).requires_grad_(False)),
        _images(shapes, device),
    )
    return lambda: model(images)


def training(shapes: Shapes, device: torch.device, compiled: Compile) -> Step:
    model = VisionTransformer(shapes).to(device)
    optimizer, forward = torch.optim.AdamW(model.parameters(), lr=1e-4), compiled(model)
    images = _images(shapes, device)
    targets = torch.randint(0, shapes.classes, (shapes.batch,), device=device)

    def step() -> torch.Tensor:
        loss = cross_entropy(forward(images), targets)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


STRATEGIES = {
    "inference": Strategy(inference, "The classes of a batch."),
    "training": Strategy(training, "Forward, backward and AdamW.", modes=(m.EAGER, "default")),
}
