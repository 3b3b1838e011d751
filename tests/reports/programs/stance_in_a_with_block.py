"""Every other call of a compiled module is made under force_eager, in a with block of a script."""

import torch

torch.manual_seed(0)


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(3, 3)

    def forward(self, x):
        return self.inner(x).relu()


encoder = torch.compile(Encoder(), backend="eager")
for turn in range(12):
    with torch.compiler.set_stance("force_eager" if turn % 2 else "default"):
        encoder(torch.ones(2, 3))
