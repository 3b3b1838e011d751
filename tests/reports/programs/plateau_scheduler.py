"""Only the optimizer's step is compiled; a plateau scheduler lowers the learning rate, a tensor, outside of it."""

import torch

torch.manual_seed(8)
weight = torch.nn.Parameter(torch.randn(8, 8))
optimizer = torch.optim.Adam([weight], lr=torch.tensor(0.1))
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)


@torch.compile
def update():
    optimizer.step()


def step():
    optimizer.zero_grad()
    loss = (weight @ weight.T).diagonal().square().mean()
    loss.backward()
    update()
    scheduler.step(float(loss.detach()) + 10.0)
