"""A compiled model is trained on one size, and after every second step it is exported with a dynamic batch."""

import torch
from torch import nn
from torch.export import Dim, export


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(3, 9)
        self.last = nn.Linear(9, 1)

    def forward(self, x):
        if torch.compiler.is_exporting():
            x = x.clamp(-5, 5)
        return self.last(torch.tanh(self.hidden(x)))


torch.manual_seed(8)
model = Regressor()
fast = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(10, 3), torch.randn(10, 1)
count = 0


def step():
    global count
    count += 1
    optimizer.zero_grad()
    loss = (fast(x) - y).square().mean()
    loss.backward()
    optimizer.step()
    if count % 2 == 0:
        program = export(model, (x,), dynamic_shapes=({0: Dim("batch", min=2, max=64)},))
        program.module()(x[:5])
    return loss.detach()


if __name__ == "__main__":
    for _ in range(6):
        step()
