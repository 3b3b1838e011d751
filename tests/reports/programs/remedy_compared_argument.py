"""The name of a task is passed to a compiled head that only compares it."""

import os

import torch

count = 0


@torch.compile(backend="eager")
def head(x, task):
    if task == "detect":
        return x.relu()
    return x.tanh()


def step():
    global count
    count += 1
    task = f"task-{count}"
    if os.environ.get("FIX"):
        task = "detect" if task == "detect" else ""
    return head(torch.ones(4), task)
