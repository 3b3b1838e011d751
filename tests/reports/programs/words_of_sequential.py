"""A compiled Sequential of torch's own layers meets three dtypes."""

import torch

net = torch.compile(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.ReLU()), backend="eager")
count = 0


def step():
    global count
    count += 1
    return net(torch.ones(2, 3, dtype=(torch.float32, torch.float64, torch.float16)[count // 6 % 3]))
