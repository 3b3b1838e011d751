"""Inference with a hand-made CUDA graph that is captured for each batch (KGP308).

FIX: "once" captures it before the loop; "shapes" keeps one graph for each of three batch sizes, which is no finding.
"""

import os
import time

import torch
from torch import nn

FIX = os.environ.get("FIX", "")
torch.manual_seed(0)
model = nn.Sequential(*(nn.Sequential(nn.Linear(256, 256), nn.GELU()) for _ in range(30))).cuda().eval()
SIZES = (16, 32, 48) if FIX == "shapes" else (32,)
batches = [torch.randn(SIZES[i % len(SIZES)], 256, device="cuda") for i in range(90)]
captured = {}


def capture(x):
    static_x = x.clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        static_y = model(static_x)
    return graph, static_x, static_y


with torch.no_grad():
    for size in SIZES:
        model(torch.randn(size, 256, device="cuda"))
    total, times = torch.zeros((), device="cuda"), []
    for i, x in enumerate(batches):
        if not FIX or len(x) not in captured:
            captured[len(x)] = capture(x)
        graph, static_x, static_y = captured[len(x)]
        static_x.copy_(x)
        graph.replay()
        total += static_y.sum()
        if i in (20, 80):
            torch.cuda.synchronize()
            times.append(time.perf_counter())
print("ms/step", (times[1] - times[0]) / 60 * 1e3)
