"""After the first batch a script sets forward hooks on two normalised layers, to collect their features."""

import torch
from torch.nn.utils.parametrizations import weight_norm

torch.manual_seed(16)
model = torch.nn.Sequential(
    weight_norm(torch.nn.Linear(7, 9)),
    torch.nn.GELU(),
    weight_norm(torch.nn.Linear(9, 7)),
)
compiled = torch.compile(model, backend="aot_eager")
features = []


def keep(module, args, output):
    features.append(output.detach())


for batch in range(6):
    if batch == 1:
        handles = [model[0].register_forward_hook(keep), model[2].register_forward_hook(keep)]
    if batch == 4:
        for handle in handles:
            handle.remove()
    with torch.no_grad():
        compiled(torch.randn(3, 7))
print(len(features), "features")
