import torch

from shelf import losses
from shelf.layers import clipped, normalised


class _Objective(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, inputs, targets):
        outputs = self.model(normalised(inputs))
        outputs = clipped(outputs)
        return losses.mse(outputs, targets)


def fit(model, batches, epochs=1, lr=1e-2):
    """Train ``model`` and return the loss of each batch."""
    objective = torch.compile(_Objective(model), backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    history = []
    for _ in range(epochs):
        for inputs, targets in batches:
            loss = objective(inputs, targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            history.append(loss.item())
    return history
