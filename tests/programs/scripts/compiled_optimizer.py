"""Compile the optimizer's step with a scheduled learning rate, in the manner of PyTorch's compiled-optimizer recipe."""

import torch

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = torch.nn.Sequential(*[torch.nn.Linear(12, 12, bias=False, device=device) for _ in range(3)])
inputs = torch.rand(12, device=device)
opt = torch.optim.Adam(model.parameters(), lr=0.01)
sched = torch.optim.lr_scheduler.LinearLR(opt, total_iters=12)


@torch.compile(fullgraph=False, backend="eager")
def fn():
    opt.step()
    sched.step()


for _ in range(12):
    opt.zero_grad()
    model(inputs).sum().backward()
    fn()
print(sched.get_last_lr())
