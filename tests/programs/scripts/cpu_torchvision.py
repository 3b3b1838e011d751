"""Import torchvision's wheel beside a CPU build of torch.

The registry's wheel is built for CUDA: its C++ operators do not load here, and ``import torchvision`` raises. The one
that detection needs is written in Python instead; everything else in torchvision is its own code. Other packages
would trip over such a torchvision, so it lies in a folder of its own beside the environment's packages.
"""

import sys
from pathlib import Path

import torch

sys.path.append(str(Path(sys.prefix) / "vision" / "site-packages"))

operators = torch.library.Library("torchvision", "DEF")
operators.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
operators.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


@torch.compiler.disable
def nms(boxes: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    """Indices of the boxes that no better box overlaps by more than the threshold, best first."""
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    order = scores.argsort(descending=True)
    kept = []
    while order.numel():
        best, order = order[0], order[1:]
        kept.append(best)
        low = torch.maximum(boxes[best, :2], boxes[order, :2])
        high = torch.minimum(boxes[best, 2:], boxes[order, 2:])
        shared = (high - low).clamp(min=0).prod(dim=1)
        order = order[shared <= iou_threshold * (areas[best] + areas[order] - shared)]
    return torch.stack(kept) if kept else scores.new_empty(0, dtype=torch.long)


operators.impl("nms", nms, "CPU")

import torchvision.extension  # noqa: E402  only now can it be imported

torchvision.extension._has_ops = lambda: True
