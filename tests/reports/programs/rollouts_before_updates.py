"""A policy walks a line for a while and is then updated a few times, in eager mode; the walking takes the longer."""

import torch

torch.manual_seed(8)
policy = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
optimizer = torch.optim.Adam(policy.parameters(), lr=0.01)


@torch.no_grad()
def rollout(length):
    place, states, moves = 0.0, [], []
    for _ in range(length):
        state = torch.tensor([place, 1.0])
        move = torch.distributions.Categorical(logits=policy(state), validate_args=False).sample()
        place += 0.2 * (2 * int(move) - 1)
        states.append(state)
        moves.append(move)
    return torch.stack(states), torch.stack(moves)


for _ in range(3):
    states, moves = rollout(60)
    for _ in range(4):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(policy(states), moves).backward()
        optimizer.step()
print("moved", tuple(states.shape))
