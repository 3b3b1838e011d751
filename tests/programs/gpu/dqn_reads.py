"""CleanRL's dqn.py in short: acts with .cpu() every step, trains from a replay buffer on the host."""

import os
import random
import time

import numpy as np
import torch
from torch import nn, optim
from torch.nn import functional as F

FIX = os.environ.get("FIX", "")
random.seed(1)
np.random.seed(1)
torch.manual_seed(1)
device = torch.device("cuda")


class QNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(
            nn.Conv2d(4, 32, 8, stride=4),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, stride=2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3, stride=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(3136, 512),
            nn.ReLU(),
            nn.Linear(512, 4),
        )

    def forward(self, x):
        return self.network(x / 255.0)


q, target = QNetwork().to(device), QNetwork().to(device)
optimizer = optim.Adam(q.parameters(), lr=1e-4)
obs_buf = np.random.randint(0, 255, (2000, 4, 84, 84), dtype=np.uint8)
obs = np.random.randint(0, 255, (1, 4, 84, 84), dtype=np.uint8)
times = []
for step in range(200):
    with torch.no_grad():
        actions = torch.argmax(q(torch.Tensor(obs).to(device)), dim=1).cpu().numpy()
    idx = np.random.randint(0, 2000, 256)
    if FIX == "pinned":
        data = torch.Tensor(obs_buf[idx]).pin_memory().to(device, non_blocking=True)
    else:
        data = torch.Tensor(obs_buf[idx]).to(device)
    a = torch.randint(0, 4, (256, 1), device=device)
    with torch.no_grad():
        target_max = target(data).max(dim=1).values
    loss = F.mse_loss(target_max * 0.99, q(data).gather(1, a).squeeze())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print("loss", loss.item())
    if step in (50, 190):
        torch.cuda.synchronize()
        times.append(time.perf_counter())
print("ms/step", (times[1] - times[0]) / 140 * 1e3)
