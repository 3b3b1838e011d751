"""A vmap gives one output back unbatched (out_dims=None), inside a compiled loss."""

import torch
from torch.func import functional_call, vmap

torch.manual_seed(18)
net = torch.nn.Linear(4, 3)
members = {name: torch.randn(5, *value.shape) for name, value in net.named_parameters()}


def member(parameters, x):
    return functional_call(net, parameters, (x,)), x.norm()


@torch.compile(backend="aot_eager")
def ensemble(x):
    outputs, size = vmap(member, in_dims=(0, None), out_dims=(0, None))(members, x)
    return outputs.var(0).sum() / size


def step():
    return ensemble(torch.ones(2, 4))


if __name__ == "__main__":
    for _ in range(5):
        print(round(step().item(), 4))
