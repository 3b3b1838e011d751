"""Lists of one to ten boxes take turns."""

import torch

count = 0


@torch.compile(backend="eager")
def union(boxes):
    total = boxes[0]
    for box in boxes[1:]:
        total = torch.maximum(total, box)
    return total


def step():
    global count
    count += 1
    return union([torch.ones(4) for _ in range(1 + count % 10)])
