"""A swarm of point masses with drag, a wall, and a reward for being near the goal."""

import torch


class World:
    def __init__(self, agents, drag=0.1, dt=0.05):
        self.agents = agents
        self.drag = drag
        self.dt = dt
        self.goal = torch.tensor([0.5, -0.5])

    def reset(self, generator):
        position = torch.rand(self.agents, 2, generator=generator) * 2 - 1
        return position, torch.zeros(self.agents, 2)

    def observe(self, position, velocity):
        to_goal = self.goal - position
        distance = to_goal.norm(dim=-1, keepdim=True)
        return torch.cat([position, velocity, to_goal, distance], dim=-1)

    @torch.compile
    def advance(self, position, velocity, force):
        velocity = (velocity + self.dt * force) * (1 - self.drag)
        velocity = velocity.clamp(-2.0, 2.0)
        position = position + self.dt * velocity
        hit = position.abs() > 1
        velocity = torch.where(hit, -velocity, velocity)
        position = position.clamp(-1, 1)
        reward = torch.exp(-(position - self.goal).pow(2).sum(dim=-1))
        return position, velocity, reward


@torch.compile
def advantages(rewards, values, last_value, discount, smoothing):
    """Generalised advantage estimates, backwards through time."""
    result = []
    running = torch.zeros_like(last_value)
    following = last_value
    for reward, value in zip(rewards.flip(0).unbind(0), values.flip(0).unbind(0)):
        delta = reward + discount * following - value
        running = delta + discount * smoothing * running
        following = value
        result.append(running)
    stacked = torch.stack(result[::-1])
    return (stacked - stacked.mean()) / (stacked.std() + 1e-8)
