"""Functions whose outcome in a CUDA graph is known: the comment above each is its truth."""

import itertools
import subprocess
import sys
import threading

import torch
from torch.nn.functional import dropout, silu

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
a, b = torch.randn(64, 32, device=device), torch.randn(64, 32, device=device)
weight = torch.randn(32, 32, device=device)
total = torch.zeros(32, device=device)
lock, barrier, counter = threading.Lock(), threading.Barrier(2), itertools.count(1)
held = {"lock": False}


# correct: reads and returns tensors, and nothing else
def plain():
    return (silu(a) * b).half()


# correct: what it writes stays at its address
def accumulates():
    total.add_((a @ weight).sum(0))
    return total * 2


# correct: torch registers its generator with the graph
def draws():
    return dropout(a, 0.5) + b


# correct: results are nested, and one of them is no tensor
def nested():
    return {"out": [a + b, (a * b).relu()], "name": "nested"}


# correct where nothing is rebound; the rebound case of it is wrong: the graph reads the address of the capture
def reads_globals():
    return torch.tanh(a @ weight + 1)


# wrong: the number is part of the captured kernel's arguments
def counts():
    return a * next(counter)


# raises: a value is read by the CPU
def reads_a_value():
    return a * a.sum().item()


# raises: the whole device is waited for
def synchronizes():
    out = a + b
    if device == "cuda":
        torch.cuda.synchronize()
    else:
        out.sum().item()  # what the tape refuses
    return out


# raises: a result is copied to pageable memory
def copies_to_the_cpu():
    return (a + b).cpu() if device == "cuda" else a * float(b.sum())


# hangs: the lock is held by a call that never returns it
def waits_for_a_lock():
    lock.acquire()
    return a + b


# hangs: nobody else comes to the barrier; what it started must end with it
def waits_at_a_barrier():
    left = subprocess.Popen(["sleep", "3600"], start_new_session=True)
    sys.stdout.write(f"descendant {left.pid} of it\n")
    barrier.wait()
    return a + b


# not applicable: it raises without any capture
def fails():
    raise ValueError("no such batch")
