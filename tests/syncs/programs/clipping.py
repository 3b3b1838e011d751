"""Gradients clipped, and the norm looked at: by the loop, by torch's own clipping, and every third step."""

import torch
from torch import nn

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
rows, targets = torch.randn(120, 8), torch.randn(120, 1)

for step, index in enumerate(torch.randperm(120).split(10)):
    x, y = rows[index].to(device), targets[index].to(device)
    if index.numel() and torch.rand([]) < 0.3:  # layer drop, as speech models write it: the draw lies on the host
        x = x + 0.1
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if not torch.isfinite(norm):  # truth-value 8 in 8
        print("skipped", int(index[0]))
        continue
    nn.utils.clip_grad_norm_(model.parameters(), 0.5, error_if_nonfinite=True)  # truth-value 8 in 8 at torch
    optimizer.step()
    optimizer.zero_grad()
    if step % 3 == 0:
        print(step, int(index.max()), norm.item())  # item 3 in 3
