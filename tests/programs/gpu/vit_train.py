"""torchvision's references/classification/train.py in short: ViT-B/16, float32, as its defaults are."""

import os
import time

import torch
import torchvision
from torch import nn

FIX = os.environ.get("FIX", "")
if FIX == "tf32":
    torch.set_float32_matmul_precision("high")
torch.manual_seed(0)
device = torch.device("cuda")


class Fake(torch.utils.data.Dataset):
    def __init__(self):
        self.images = torch.randn(64, 3, 224, 224)

    def __len__(self):
        return 64 * 45

    def __getitem__(self, i):
        return self.images[i % 64], i % 1000


loader = torch.utils.data.DataLoader(Fake(), batch_size=64, shuffle=True, num_workers=6, pin_memory=True)
model = torchvision.models.vit_b_16().to(device)
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
times = []
for i, (image, target) in enumerate(loader):
    image, target = image.to(device, non_blocking=True), target.to(device, non_blocking=True)
    output = model(image)
    loss = criterion(output, target)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1)
    optimizer.step()
    if i in (10, 40):
        torch.cuda.synchronize()
        times.append(time.perf_counter())
print("ms/step", (times[1] - times[0]) / 30 * 1e3)
