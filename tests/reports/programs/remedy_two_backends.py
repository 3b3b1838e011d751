"""One function is compiled by two torch.compile calls with backends of their own."""

import os

import torch


def body(x):
    return x.sin() * 2


first = torch.compile(body, backend="eager")
second = first if os.environ.get("FIX") else torch.compile(body, backend="aot_eager")
count = 0


def step():
    global count
    count += 1
    return (first if count < 6 else second)(torch.ones(3))
