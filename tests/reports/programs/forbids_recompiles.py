"""A service forbids recompiles once it is warm, and answers a larger request without compiled code."""

import torch

head = torch.nn.Linear(6, 2)
answer = torch.compile(head, backend="eager", dynamic=False)
answer(torch.ones(4, 6))
torch._dynamo.config.error_on_recompile = True
count = 0


def step():
    global count
    count += 1
    rows = torch.ones(9 if count == 7 else 4, 6)
    try:
        return answer(rows)
    except torch._dynamo.exc.RecompileError:
        return head(rows)
