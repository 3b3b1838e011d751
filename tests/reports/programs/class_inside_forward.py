"""A compiled function defines a small class for its result each time it runs."""

import torch


@torch.compile(backend="aot_eager")
def detect(image):
    heat = image.square().sum(0)

    class Result:
        peak = None

    result = Result()
    result.peak = heat.amax()
    return result.peak + heat.mean()


image = torch.rand(3, 5, 5)
for _ in range(10):
    detect(image)
