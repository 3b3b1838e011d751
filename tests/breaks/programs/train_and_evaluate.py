"""Three epochs with a smaller last batch, and an evaluation after each: two recompiles, once each and never again."""

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.Tanh(), torch.nn.Linear(32, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
train_set = TensorDataset(torch.randn(70, 4), torch.randint(0, 2, (70,)))
test_set = TensorDataset(torch.randn(32, 4), torch.randint(0, 2, (32,)))


@torch.compile(backend="eager")
def forward(rows, labels):
    return torch.nn.functional.cross_entropy(model(rows), labels)


def train(loader):
    model.train()
    for rows, labels in loader:
        optimizer.zero_grad()
        loss = forward(rows, labels)
        loss.backward()
        optimizer.step()


def test(loader):
    model.eval()
    with torch.no_grad():
        return sum(forward(rows, labels).item() for rows, labels in loader) / len(loader)


for epoch in range(3):
    train(DataLoader(train_set, batch_size=16))
    print(f"epoch {epoch}: {test(DataLoader(test_set, batch_size=16)):.4f}")
