"""One compiled function does a whole training step with a gradient scaler."""

import time

import torch
from torch import nn


def make():
    torch.manual_seed(30)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.PReLU(), nn.Conv2d(8, 8, 3, 2), nn.PReLU(), nn.Flatten(), nn.Linear(288, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    return model, optimizer, torch.amp.GradScaler("cpu", init_scale=2.0)


def train(model, images, labels, optimizer, scaler):
    optimizer.zero_grad(set_to_none=True)
    loss = nn.functional.cross_entropy(model(images), labels)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss


def measure(function, rounds):
    model, optimizer, scaler = make()
    times = []
    for _ in range(rounds):
        images, labels = torch.randn(16, 3, 16, 16), torch.randint(0, 10, (16,))
        began = time.perf_counter()
        function(model, images, labels, optimizer, scaler)
        times.append(time.perf_counter() - began)
    return sorted(times)[rounds // 2]


def main():
    plain = measure(train, 15)
    compiled = measure(torch.compile(train, backend="aot_eager"), 15)
    print(f"plain {1e3 * plain:.2f} ms, compiled {1e3 * compiled:.2f} ms a step")


if __name__ == "__main__":
    main()
