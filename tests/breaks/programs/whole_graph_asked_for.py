"""fullgraph=True around a model whose second call into a library cannot be traced; the script falls back by itself."""

import torch
from shelf.layers import clipped


class Head(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x):
        y = self.layer(x).relu()
        return clipped(y)


head = Head()
compiled = torch.compile(head, fullgraph=True, backend="eager")
for _ in range(3):
    rows = torch.ones(2, 4)
    try:
        out = compiled(rows)
    except torch._dynamo.exc.Unsupported:
        out = head(rows)
print(out.shape)
