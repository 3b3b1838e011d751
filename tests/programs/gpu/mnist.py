"""pytorch/examples mnist/main.py in short: transforms in the loader, no worker."""

import os
import time

import numpy as np
import torch
from PIL import Image
from torch import nn, optim
from torch.nn import functional as F
from torchvision import transforms

FIX = os.environ.get("FIX", "")
torch.manual_seed(1)
device = torch.device("cuda")
rng = np.random.default_rng(0)
raw = rng.integers(0, 255, (1000, 28, 28), dtype=np.uint8)
tf = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))])


class MNIST(torch.utils.data.Dataset):
    def __len__(self):
        return 64 * 330

    def __getitem__(self, i):
        return tf(Image.fromarray(raw[i % 1000], mode="L")), i % 10


kw = {"num_workers": 8, "pin_memory": True, "persistent_workers": True} if FIX == "workers" else {}
loader = torch.utils.data.DataLoader(MNIST(), batch_size=64, shuffle=True, **kw)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, 1)
        self.conv2 = nn.Conv2d(32, 64, 3, 1)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        x = torch.flatten(self.dropout1(F.max_pool2d(x, 2)), 1)
        return F.log_softmax(self.fc2(self.dropout2(F.relu(self.fc1(x)))), dim=1)


model = Net().to(device)
optimizer = optim.Adadelta(model.parameters(), lr=1.0)
times = []
model.train()
for batch_idx, (data, target) in enumerate(loader):
    data, target = data.to(device), target.to(device)
    optimizer.zero_grad()
    loss = F.nll_loss(model(data), target)
    loss.backward()
    optimizer.step()
    if batch_idx % 10 == 0:
        print(f"[{batch_idx * len(data)}] Loss: {loss.item():.6f}")
    if batch_idx in (30, 320):
        torch.cuda.synchronize()
        times.append(time.perf_counter())
print("ms/step", (times[1] - times[0]) / 290 * 1e3)
