"""A trainer enters what its precision setting asks for on an ExitStack, within the compiled loss."""

from contextlib import ExitStack

import torch
from torch import nn


class Precision:
    def __init__(self, name):
        self.name = name

    def contexts(self):
        if self.name == "bf16-mixed":
            yield torch.autocast("cpu", dtype=torch.bfloat16)
        yield torch.autograd.set_grad_enabled(True)


class Trainer:
    def __init__(self, model, precision):
        self.model = model
        self.precision = Precision(precision)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        self.loss = torch.compile(self.loss_of, backend="aot_eager")

    def loss_of(self, rows, wanted):
        scaled = (rows - rows.mean(0)) / (rows.std(0) + 1e-5)
        with ExitStack() as stack:
            for context in self.precision.contexts():
                stack.enter_context(context)
            found = self.model(scaled)
        return nn.functional.mse_loss(found.float(), wanted)

    def fit_batch(self, rows, wanted):
        loss = self.loss(rows, wanted)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


torch.manual_seed(119)
trainer = Trainer(nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1)), "bf16-mixed")


def step():
    rows = torch.randn(32, 5)
    return trainer.fit_batch(rows, rows.prod(1, keepdim=True))


if __name__ == "__main__":
    for _ in range(20):
        loss = step()
    print(f"{loss:.3f}")
