"""The process that trains also crops and jitters the pictures; FIX=1 leaves it to eight workers."""

import os
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

FIX = os.environ.get("FIX") == "1"


class Pictures(Dataset[tuple[torch.Tensor, int]]):
    def __init__(self) -> None:
        self.stored = torch.randint(0, 256, (64, 3, 288, 288), dtype=torch.uint8)

    def __len__(self) -> int:
        return 3200

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        torch.set_num_threads(1)
        picture = self.stored[index % 64].float().div(255)
        picture = nn.functional.interpolate(picture[None], size=(256, 256), mode="bilinear")[0]
        top, left = torch.randint(0, 32, (2,)).tolist()
        crop = picture[:, top : top + 224, left : left + 224]
        mean = crop.mean(dim=(1, 2), keepdim=True)
        return ((crop - mean) * (0.8 + 0.4 * torch.rand(1)) + mean).contiguous(), index % 10


def main() -> None:
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    workers = {"num_workers": 8, "pin_memory": True, "persistent_workers": True} if FIX else {}
    loader = DataLoader(Pictures(), batch_size=64, shuffle=True, **workers)
    layers = [nn.Conv2d(3, 64, 7, 4), nn.ReLU(), nn.Conv2d(64, 128, 3, 2), nn.ReLU()]
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    compiled = torch.compile(net)
    for _ in range(2):
        began = time.perf_counter()
        for pictures, labels in loader:
            output = compiled(pictures.cuda(non_blocking=True))
            loss = nn.functional.cross_entropy(output, labels.cuda(non_blocking=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        torch.cuda.synchronize()
        print(f"epoch {time.perf_counter() - began:.2f} s")


if __name__ == "__main__":
    main()
