"""A notebook session in cells: jagged batches of changing lengths go through a layer under kgprof.watch."""

import code
import os

CELLS = [
    """
import torch, kgprof
torch.manual_seed(19)
layer = torch.nn.Linear(6, 6)
def encode(ragged):
    return torch.nn.functional.silu(layer(ragged)) * 2
fast = torch.compile(encode, backend="aot_eager")
""",
    """
def batch(*lengths):
    return torch.nested.nested_tensor([torch.randn(n, 6) for n in lengths], layout=torch.jagged)
batches = [batch(2, 5, 3), batch(4, 1, 6), batch(7, 7, 2), batch(3, 9, 5), batch(1, 1, 8)]
""",
    """
watched = kgprof.watch(fast) if WATCHED else fast
for ragged in batches:
    out = watched(ragged)
if WATCHED: watched.stop()
""",
    "print([part.shape[0] for part in out.unbind()])\n",
    "if WATCHED: print(watched)\n",
    "if WATCHED: print(*watched.notes, sep='\\n')\n",
]
session = code.InteractiveInterpreter({"WATCHED": bool(os.environ.get("WATCHED"))})
for number, cell in enumerate(CELLS, 1):
    session.runcode(compile(cell, f"<cell {number}>", "exec"))
