"""The model is compiled and warmed while the file is imported; each later step runs that graph."""

import torch

torch.manual_seed(6)
encoder = torch.compile(torch.nn.Sequential(torch.nn.Linear(5, 5), torch.nn.Sigmoid()))
sample = torch.ones(3, 5)
encoder(sample)


def step():
    return encoder(sample)
