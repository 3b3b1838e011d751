"""A rollout of eight steps in a simulated world, with the advantages that a policy update needs."""

import torch
from torch import nn

from control.world import World, advantages

AGENTS = 512
HORIZON = 8
HIDDEN = 192


class Policy(nn.Module):
    def __init__(self, observations=7, actions=2, hidden=HIDDEN):
        super().__init__()
        self.first = nn.Linear(observations, hidden)
        self.second = nn.Linear(hidden, hidden)
        self.actor = nn.Linear(hidden, actions)
        self.critic = nn.Linear(hidden, 1)

    def forward(self, observation):
        x = torch.tanh(self.first(observation))
        x = torch.tanh(self.second(x))
        return torch.tanh(self.actor(x)), self.critic(x).squeeze(-1)


class Rollout:
    def __init__(self):
        self.rewards = []
        self.values = []

    def add(self, reward, value):
        self.rewards.append(reward)
        self.values.append(value)

    def stacked(self):
        return torch.stack(self.rewards), torch.stack(self.values)


torch.manual_seed(0)
generator = torch.Generator().manual_seed(1)
world = World(AGENTS)
policy = Policy()
act = torch.compile(policy)
start = world.reset(generator)


@torch.no_grad()
def step():
    position, velocity = start
    rollout = Rollout()
    for _ in range(HORIZON):
        observation = world.observe(position, velocity)
        force, value = act(observation)
        position, velocity, reward = world.advance(position, velocity, force)
        rollout.add(reward, value)
    _, last_value = act(world.observe(position, velocity))
    rewards, values = rollout.stacked()
    result = advantages(rewards, values, last_value, 0.99, 0.95)
    return {"advantage": result, "reward": rewards.sum(dim=0).mean()}
