"""Each layer has an optimizer that steps as soon as the gradient of its weights is there."""

import torch

torch.manual_seed(3)
net = torch.nn.Sequential(torch.nn.Linear(6, 9), torch.nn.ReLU(), torch.nn.Linear(9, 2))
each = {weights: torch.optim.RMSprop([weights], lr=1e-2) for weights in net.parameters()}


def apply(weights):
    each[weights].step()
    weights.grad = None


for weights in net.parameters():
    weights.register_post_accumulate_grad_hook(apply)

forward = torch.compile(net, backend="aot_eager")
for _ in range(20):
    rows = torch.randn(8, 6)
    torch.nn.functional.mse_loss(forward(rows), rows[:, 2:4]).backward()
print(all(weights.grad is None for weights in net.parameters()))
