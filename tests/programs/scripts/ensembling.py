"""Run an ensemble at once with torch.func, compiled, as PyTorch's model-ensembling tutorial does in eager."""

import copy

import torch
from torch import nn
from torch.func import functional_call, stack_module_state, vmap

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
num_models = 3


class SimpleMLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(16, 24)
        self.fc2 = nn.Linear(24, 4)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


models = [SimpleMLP().to(device) for _ in range(num_models)]
params, buffers = stack_module_state(models)
base_model = copy.deepcopy(models[0]).to("meta")


def fmodel(params, buffers, x):
    return functional_call(base_model, (params, buffers), (x,))


@torch.compile(backend="eager")
def predict(params, buffers, data):
    return vmap(fmodel, in_dims=(0, 0, None))(params, buffers, data)


votes = []
with torch.no_grad():
    for _ in range(10):
        data = torch.randn(8, 4, 4, device=device)
        votes.append(predict(params, buffers, data).mean(dim=0))
print(torch.cat(votes).argmax(dim=1).bincount(minlength=4).tolist())
