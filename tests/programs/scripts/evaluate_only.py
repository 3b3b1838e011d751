"""Evaluate a classifier over a loader whose last batch is partial, with Inductor's defaults."""

import torch
from torch import nn

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 6)).to(device).eval()
model = torch.compile(model)
samples = torch.utils.data.TensorDataset(torch.randn(100, 20), torch.randint(0, 6, (100,)))
loader = torch.utils.data.DataLoader(samples, batch_size=12)

correct = torch.zeros((), dtype=torch.long, device=device)
with torch.no_grad():
    for inputs, targets in loader:
        inputs, targets = inputs.to(device, non_blocking=True), targets.to(device, non_blocking=True)
        correct += (model(inputs).argmax(dim=1) == targets).sum()
print(f"accuracy {correct.item() / len(samples):.3f}")
