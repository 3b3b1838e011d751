"""Images are cropped, flipped and blurred by the process that trains: DataLoader(num_workers=0).

Truth: the GPU waits for the DataLoader in most of each step. FIX=1: eight workers.
"""

import os
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

FIX = os.environ.get("FIX") == "1"
BATCH, BATCHES = 48, 40


class Plates(Dataset):
    """Photographs of number plates, made up."""

    def __init__(self) -> None:
        self.plates = torch.rand(256, 3, 96, 192)
        self.weights = torch.ones(3, 1, 9, 9) / 81

    def __len__(self) -> int:
        return BATCH * BATCHES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        plate = self.plates[index % 256]
        top, left = (int(at) for at in torch.randint(0, 16, (2,)))
        plate = plate[:, top : top + 80, left : left + 176]
        plate = F.conv2d(plate[None], self.weights, padding=4, groups=3)
        plate = F.interpolate(plate, size=(64, 160), mode="bicubic", antialias=True)[0]
        return (plate - plate.mean()) / plate.std(), index % 36


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(4)
    workers = {"num_workers": 8, "persistent_workers": True} if FIX else {"num_workers": 0}
    loader = DataLoader(Plates(), batch_size=BATCH, shuffle=True, pin_memory=True, **workers)
    reader = nn.Sequential(
        nn.Conv2d(3, 48, 3, padding=1, stride=2),
        nn.ReLU(),
        nn.Conv2d(48, 96, 3, padding=1, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(96 * 16, 36),
    ).cuda()
    optimizer = torch.optim.SGD(reader.parameters(), lr=0.05, momentum=0.9)
    compiled = torch.compile(reader)
    started = time.perf_counter()
    for epoch in range(3):
        if epoch == 1:
            torch.cuda.synchronize()
            started = time.perf_counter()
        for plates, letters in loader:
            plates, letters = plates.cuda(non_blocking=True), letters.cuda(non_blocking=True)
            loss = F.cross_entropy(compiled(plates), letters)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    torch.cuda.synchronize()
    print(f"ms/step {(time.perf_counter() - started) / (2 * BATCHES) * 1e3:.2f}")


if __name__ == "__main__":
    main()
