"""Every second call of a compiled function runs under a dispatch mode that counts operators."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Counting(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen += 1
        return func(*args, **(kwargs or {}))


@torch.compile(backend="eager")
def project(a, b):
    return torch.relu(a @ b)


left, right = torch.ones(3, 3), torch.eye(3)
counter = Counting()
calls = 0


def step():
    global calls
    calls += 1
    if calls % 2:
        return project(left, right)
    with counter:
        return project(left, right)


if __name__ == "__main__":
    for _ in range(10):
        step()
