"""A flow policy turns noise into a chunk of actions; its loop goes on while the time, a tensor, is positive."""

import torch
from torch import nn


class FlowPolicy(nn.Module):
    def __init__(self, observed=6, actions=4, parts=5):
        super().__init__()
        self.parts = parts
        self.actions = actions
        self.velocity = nn.Sequential(nn.Linear(observed + actions + 1, 24), nn.SiLU(), nn.Linear(24, actions))

    def denoise(self, observation, noisy, time):
        times = time.expand(observation.shape[0], 1)
        return self.velocity(torch.cat((observation, noisy, times), dim=1))

    def sample(self, observation):
        noisy = torch.randn(observation.shape[0], self.actions)
        width = torch.tensor(-1.0 / self.parts)
        time = torch.tensor(1.0)
        while time >= -width / 2:
            noisy = noisy + width * self.denoise(observation, noisy, time)
            time = time + width
        return noisy


def main():
    torch.manual_seed(0)
    policy = FlowPolicy().eval()
    act = torch.compile(policy.sample, backend="aot_eager")
    with torch.inference_mode():
        for episode in range(10):
            chunk = act(torch.randn(3, 6))
            if episode % 5 == 4:
                print(f"episode {episode}: mean action {chunk.mean():+.3f}")


if __name__ == "__main__":
    main()
