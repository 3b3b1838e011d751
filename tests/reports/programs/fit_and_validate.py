"""Two epochs of training and validation over a DataLoader whose last batch is smaller."""

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(5)
inputs = torch.randn(50, 6)
data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
train, held_out = DataLoader(data, batch_size=16, shuffle=True), DataLoader(data, batch_size=25)


class Regression(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(6, 18), torch.nn.Tanh(), torch.nn.Linear(18, 1))

    def forward(self, batch):
        return self.layers(batch)


model = Regression()
compiled = torch.compile(model)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

for epoch in range(3):
    model.train()
    for batch, target in train:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(compiled(batch), target).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        errors = [torch.nn.functional.mse_loss(compiled(batch), target) for batch, target in held_out]
    print(f"epoch {epoch}: {torch.stack(errors).mean().item():.3f}")
