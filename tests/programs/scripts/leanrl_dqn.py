"""Q-learning whose update is one compiled function over batches that stay on the device, in the manner of LeanRL."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(1)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
buffer_size, batch_size, gamma, total_timesteps, learning_starts, target_frequency = 64, 16, 0.99, 60, 20, 10


class QNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 2))

    def forward(self, x):
        return self.network(x)


q_network = QNetwork().to(device)
target_network = QNetwork().to(device)
target_network.load_state_dict(q_network.state_dict())
optimizer = torch.optim.Adam(q_network.parameters(), lr=1e-3, capturable=device.type == "cuda")
replay = {
    "obs": torch.zeros(buffer_size, 4, device=device),
    "next_obs": torch.zeros(buffer_size, 4, device=device),
    "actions": torch.zeros(buffer_size, dtype=torch.long, device=device),
    "rewards": torch.zeros(buffer_size, device=device),
    "dones": torch.zeros(buffer_size, device=device),
}


def update(obs, next_obs, actions, rewards, dones):
    with torch.no_grad():
        target_max = target_network(next_obs).max(dim=1).values
        td_target = rewards + gamma * target_max * (1 - dones)
    old_val = q_network(obs).gather(1, actions.unsqueeze(1)).squeeze(1)
    return F.mse_loss(td_target, old_val)


def policy(obs, epsilon):
    random = torch.randint(0, 2, (obs.shape[0],), device=obs.device)
    greedy = q_network(obs).argmax(dim=1)
    return torch.where(torch.rand(obs.shape[0], device=obs.device) < epsilon, random, greedy)


update = torch.compile(update, backend="aot_eager")
policy = torch.compile(torch.no_grad()(policy), backend="aot_eager")
obs = torch.randn(1, 4, device=device)
epsilon = torch.tensor(0.5, device=device)
losses = torch.zeros((), device=device)
for global_step in range(total_timesteps):
    action = policy(obs, epsilon)
    next_obs = obs * 0.95 + (action.float() - 0.5).unsqueeze(1) * 0.1
    slot = global_step % buffer_size
    replay["obs"][slot], replay["next_obs"][slot] = obs[0], next_obs[0]
    replay["actions"][slot], replay["rewards"][slot] = action[0], -next_obs.abs().sum()
    obs = next_obs
    if global_step >= learning_starts:
        indices = torch.randint(0, learning_starts, (batch_size,), device=device)
        loss = update(*(replay[name][indices] for name in ("obs", "next_obs", "actions", "rewards", "dones")))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses += loss.detach()
        if global_step % target_frequency == 0:
            for target_param, q_param in zip(target_network.parameters(), q_network.parameters(), strict=True):
                target_param.data.copy_(q_param.data)
print("mean loss", (losses / (total_timesteps - learning_starts)).item())
