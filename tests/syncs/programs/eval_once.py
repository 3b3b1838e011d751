"""Accuracy accumulated on the device and read once an epoch; predictions brought over and joined on the host."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
train_set = TensorDataset(torch.randn(40, 4), torch.randint(0, 3, (40,)))
test_set = TensorDataset(torch.randn(16, 4), torch.randint(0, 3, (16,)))
model = nn.Linear(4, 3).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
cpu_device = torch.device("cpu")


@torch.no_grad()
def evaluate(loader):
    correct = torch.zeros((), device=device)
    predictions, labels, scores = [], [], []
    for x, y in loader:
        out = model(x.to(device))
        weight = torch.ones(len(y)).to(out.device)
        correct += ((out.argmax(1) == y.to(out.device)) * weight).sum()
        predictions.append(out.argmax(1).cpu())  # cpu 6 in 3
        scores.append(out.softmax(1).to(cpu_device))  # to 6 in 3
        labels.append(y)
    table = torch.zeros(3, 3)
    for guess, label in zip(torch.cat(predictions), torch.cat(labels).tolist(), strict=True):
        table[label, guess] += 1
    print(np.trace(table.numpy()), torch.cat(scores).max().item())
    return correct.item() / len(loader.dataset)  # item 3 in 3


for epoch in range(4):
    for x, y in DataLoader(train_set, batch_size=8, shuffle=True):
        loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: {evaluate(DataLoader(test_set, batch_size=8)):.3f}")
