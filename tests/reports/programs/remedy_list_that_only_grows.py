"""A simulation's compiled move keeps each energy in a list of its own, which nobody reads there."""

import os

import torch


class Walk:
    def __init__(self):
        self.place = torch.zeros(3)
        self.energies = []

    @torch.compile(backend="eager")
    def move(self, push):
        self.place = self.place * 0.9 + push
        energy = self.place.square().sum()
        if not os.environ.get("FIX"):
            self.energies.append(energy)
        return energy


walk = Walk()


def step():
    energy = walk.move(torch.ones(3))
    if os.environ.get("FIX"):
        walk.energies.append(energy)
    return energy
