"""A classifier is compiled once and trained on batches of one size, as the first torch.compile tutorial does."""

import torch

torch.manual_seed(1)
classifier = torch.nn.Sequential(torch.nn.Linear(12, 24), torch.nn.GELU(), torch.nn.Linear(24, 3))
optimizer = torch.optim.SGD(classifier.parameters(), lr=0.05)
compiled = torch.compile(classifier)
features, labels = torch.randn(16, 12), torch.randint(3, (16,))


def step():
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(compiled(features), labels)
    loss.backward()
    optimizer.step()
    return loss.detach()


if __name__ == "__main__":
    for _ in range(6):
        step()
