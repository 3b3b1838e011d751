"""A temperature that falls with every epoch and is an attribute of the module: a recompile in each epoch."""

import torch


class Policy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.temperature = "hot 5"

    def forward(self, x):
        factor = int(self.temperature.split()[1])
        return (self.layer(x) / factor).softmax(-1)


policy = Policy()
compiled = torch.compile(policy, backend="eager")
optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
for epoch in range(5):
    policy.temperature = f"hot {5 - epoch}"
    for _ in range(4):
        loss = compiled(torch.ones(3, 4))[:, 0].sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
