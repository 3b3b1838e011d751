"""A ResNet-50 trains in eager mode on contiguous pictures; FIX=1 compiles it, in channels_last."""

import os
import time

import torch
from torch import nn
from torchvision.models import resnet50

FIX = os.environ.get("FIX") == "1"
torch.manual_seed(0)
torch.backends.cudnn.benchmark = True
torch.set_float32_matmul_precision("high")
torch.backends.cudnn.allow_tf32 = True
net = resnet50(num_classes=100).cuda()
pictures = torch.randn(96, 3, 224, 224, device="cuda")
labels = torch.randint(0, 100, (96,), device="cuda")
model = net
if FIX:
    net.to(memory_format=torch.channels_last)
    pictures = pictures.to(memory_format=torch.channels_last)
    model = torch.compile(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, fused=True)
for step in range(70):
    if step == 30:
        torch.cuda.synchronize()
        began = time.perf_counter()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(model(pictures), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
torch.cuda.synchronize()
print(f"{(time.perf_counter() - began) / 40 * 1e3:.2f} ms/step")
