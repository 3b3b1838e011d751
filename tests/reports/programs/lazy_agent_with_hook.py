"""An agent's network of lazy layers, and a hook on all modules that counts the rows which each layer gives."""

import torch
from torch import nn

rows = {}


def count(module, arguments, result):
    rows[type(module).__name__] = rows.get(type(module).__name__, 0) + result.shape[0]


handle = nn.modules.module.register_module_forward_hook(count)
agent = nn.Sequential(nn.LazyLinear(8), nn.Tanh(), nn.LazyLinear(3))
agent.register_buffer("norm", nn.parameter.UninitializedBuffer())
target = nn.Sequential(nn.LazyLinear(8), nn.Tanh(), nn.LazyLinear(3))
agent.to("cpu")  # as every program does that has a device
seen = torch.zeros(6, 4)
for network in (agent, target):
    network(seen)
agent.norm.materialize(())
agent.norm.fill_(2.0)
target.load_state_dict(agent.state_dict(), strict=False)
handle.remove()
counted = dict(rows)


@torch.compile(backend="eager")
def difference(observation):
    return (agent(observation) - target(observation)) / agent.norm


def step():
    return difference(seen)


if __name__ == "__main__":
    for _ in range(6):
        step()
    print("rows", counted["Linear"], float(step().abs().max().detach()))
