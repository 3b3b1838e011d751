"""A function is made from text in each step; torch is reset once, which explains none of it."""

import torch

step_number = 0


def step():
    global step_number
    step_number += 1
    if step_number == 2:
        torch._dynamo.reset()
    names = {}
    exec("def formula(x):\n    return x * 3 + 1\n", names)
    return torch.compile(names["formula"], backend="eager")(torch.ones(3))
