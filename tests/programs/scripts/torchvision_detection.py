"""Evaluate a detector under inference_mode, in the manner of torchvision's references: the whole model compiled."""

import cpu_torchvision  # noqa: F401
import torch
from torchvision.models.detection import RetinaNet
from torchvision.models.detection.anchor_utils import AnchorGenerator

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
backbone = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 3, stride=4, padding=1),
    torch.nn.ReLU(),
    torch.nn.Conv2d(8, 8, 3, stride=4, padding=1),
)
backbone.out_channels = 8
anchors = AnchorGenerator(sizes=((16, 32),), aspect_ratios=((1.0,),))
model = RetinaNet(
    backbone, num_classes=3, anchor_generator=anchors, min_size=64, max_size=64, score_thresh=0.0, detections_per_img=5
)
model.to(device)
model.eval()
model = torch.compile(model, backend="eager")
data_loader = [
    ([torch.rand(3, 64, 64), torch.rand(3, 64, 64)], [{"image_id": 2 * i}, {"image_id": 2 * i + 1}]) for i in range(8)
]


@torch.inference_mode()
def evaluate(model, data_loader, device):
    cpu_device = torch.device("cpu")
    found = {}
    for images, targets in data_loader:
        images = list(img.to(device) for img in images)
        outputs = model(images)
        outputs = [{k: v.to(cpu_device) for k, v in t.items()} for t in outputs]
        res = {target["image_id"]: output for target, output in zip(targets, outputs, strict=True)}
        found.update(res)
    return found


detections = evaluate(model, data_loader, device)
print(len(detections), [len(output["boxes"]) for output in detections.values()])
