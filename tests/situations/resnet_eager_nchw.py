"""A ResNet-50 trained in bfloat16, in eager and in PyTorch's default memory format (NCHW).

Truth: the GPU is busy; kernels that change the layout, batch norms and activations take much of it.
FIX=compile: torch.compile. FIX=layout: channels_last. FIX=1: both.
"""

import os
import time

import torch
from torch import nn
from torchvision.models import resnet50

FIX = os.environ.get("FIX", "")
torch.manual_seed(5)
torch.backends.cudnn.benchmark = True
layout = torch.channels_last if FIX in ("1", "layout") else torch.contiguous_format
network = resnet50(num_classes=120).cuda().to(memory_format=layout)
optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, fused=True)
model = torch.compile(network) if FIX in ("1", "compile") else network
images = torch.randn(96, 3, 192, 192, device="cuda").to(memory_format=layout)
breeds = torch.randint(0, 120, (96,), device="cuda")
judge = nn.CrossEntropyLoss()
started = 0.0
for i in range(50):
    if i == 20:
        torch.cuda.synchronize()
        started = time.perf_counter()
    with torch.autocast("cuda", torch.bfloat16):
        loss = judge(model(images), breeds)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
torch.cuda.synchronize()
print(f"ms/step {(time.perf_counter() - started) / 30 * 1e3:.2f}")
