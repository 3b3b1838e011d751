"""Forward, backward and the optimizer's step are compiled as one function, without any scheduler."""

import torch

torch.manual_seed(9)
network = torch.nn.Linear(10, 4)
optimizer = torch.optim.RMSprop(network.parameters(), lr=torch.tensor(0.01))
batch = torch.randn(8, 10)


@torch.compile(backend="aot_eager")
def train():
    loss = network(batch).logsumexp(-1).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def step():
    return train()
