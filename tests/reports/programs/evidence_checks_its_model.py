"""A Gaussian process is trained in eager mode, and the object of its loss takes no other class of model."""

import torch

torch.manual_seed(6)
at = torch.linspace(0, 1, 16)
seen = torch.sin(5 * at)


class Process(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.width = torch.nn.Parameter(torch.tensor(0.3))

    def forward(self, places):
        apart = places[:, None] - places[None, :]
        return torch.exp(-0.5 * (apart / self.width) ** 2) + 0.1 * torch.eye(len(places))


class Evidence:
    def __init__(self, process):
        if not isinstance(process, Process):
            raise TypeError(f"Evidence takes a Process, not {type(process).__name__}")
        self.process = process

    def __call__(self, covariance, values):
        factor = torch.linalg.cholesky(covariance)
        white = torch.cholesky_solve(values[:, None], factor)[:, 0]
        return 0.5 * values @ white + factor.diagonal().log().sum()


process = Process()
evidence = Evidence(process)
optimizer = torch.optim.Adam(process.parameters(), lr=0.02)
for _ in range(12):
    optimizer.zero_grad()
    cost = evidence(process(at), seen)
    cost.backward()
    optimizer.step()
print("cost", round(float(cost), 3))
