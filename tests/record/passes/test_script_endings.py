"""A script ends when and as Python ends it: exit code, output and its order are those of ``python
program.py``.

Nothing is set for torch here: the programs compile with Inductor's own defaults, compile workers
included.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from kgprof.model import PassName
from tests.record.scripted import ran

TWO_COMPILES = """
import torch

double = torch.compile(lambda x: x * 2)
triple = torch.compile(lambda x: x * 3)
print(double(torch.ones(8)).sum().item(), triple(torch.ones(8)).sum().item(), flush=True)
"""
OPEN_EXECUTORS = """
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

def late(number):
    time.sleep(0.2)
    print("task", number, flush=True)
    return number

if __name__ == "__main__":
    threads, processes = ThreadPoolExecutor(1), ProcessPoolExecutor(1)
    for number in range(3):
        threads.submit(late, number)
    print("process", processes.submit(abs, -5).result(), flush=True)
    print("end of main", flush=True)
"""
THREADS_AND_ATEXIT = """
import atexit, sys, threading, time
import torch

@torch.compile(backend="eager")
def doubled(x):
    return x * 2

def compiled_after_main():
    threading.main_thread().join()
    print("thread", doubled(torch.ones(2)).sum().item(), flush=True)

def daemon():
    print("daemon", flush=True)
    started.set()
    time.sleep(60)
    print("never", flush=True)

started = threading.Event()
atexit.register(print, "registered first, called last", flush=True)
atexit.register(lambda: print("atexit", doubled(torch.ones(2, 3)).sum().item(), flush=True))
threading.Thread(target=daemon, daemon=True).start()
started.wait()
threading.Thread(target=compiled_after_main).start()
print("end of main", flush=True)
sys.exit("its last words")
"""
PROCESSES = """
import multiprocessing, os, sys, time

def work(name, seconds):
    time.sleep(seconds)
    print(name, flush=True)

if __name__ == "__main__":
    if os.fork() == 0:
        print("forked by hand", flush=True)
    else:
        os.wait()
        pool = multiprocessing.get_context("spawn").Pool(1)
        print(pool.map(abs, [-1, -2]), flush=True)
        multiprocessing.get_context("fork").Process(target=work, args=("forked", 0.5)).start()
        multiprocessing.get_context("spawn").Process(target=work, args=("spawned", 1.5)).start()
        print("end of main", flush=True)
        raise ValueError("the end")
"""
LOADER = """
import torch
from torch.utils.data import DataLoader

if __name__ == "__main__":
    loader = DataLoader(list(range(8)), batch_size=2, num_workers=2, persistent_workers=True)
    for batch in loader:
        print(batch.tolist(), flush=True)
    left_half_way = iter(loader)
    print(next(left_half_way).tolist(), flush=True)
"""
LEAVES_IN_ATEXIT = """
import atexit, os

def leave():
    print("leaves", flush=True)
    os._exit(7)

atexit.register(leave)
print("end of main", flush=True)
"""
EXITS_WITH_256 = "import sys\nprint('once', flush=True)\nsys.exit(256)\n"


@pytest.mark.parametrize(
    ("text", "code", "outcome"),
    [
        (TWO_COMPILES, 0, "ok"),
        (OPEN_EXECUTORS, 0, "ok"),
        (THREADS_AND_ATEXIT, 1, "exited"),
        (PROCESSES, 1, "raised"),
        (LOADER, 0, "ok"),
        (LEAVES_IN_ATEXIT, 7, "exited"),
        (EXITS_WITH_256, 0, "ok"),
    ],
    ids=[
        "two compiles",
        "executors",
        "threads and atexit",
        "processes",
        "loader",
        "leaves in atexit",
        "256",
    ],
)
def test_a_program_ends_as_python_ends_it(
    tmp_path: Path, text: str, code: int, outcome: str
) -> None:
    plain = run_by_python(tmp_path, text)

    done = ran(tmp_path, text, passes=(PassName.COMPILE,), ends_as_python=True)

    assert plain.returncode == code
    assert (done.exit.exit_code, done.exit.outcome) == (code, outcome), done.exit
    assert done.echoed == plain.stdout
    assert done.echoed in done.run.log
    assert not any("ended without a word" in note for note in done.script.notes)
    # what a thread compiles after main has ended, and an atexit handler
    if text == THREADS_AND_ATEXIT:
        assert [one.compile_id for one in done.compiled.compilations] == ["0/0", "0/1"]


def run_by_python(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    """With what it writes to stderr in its ``stdout`` too, in the order in which a terminal would
    show it."""
    file = folder / "program.py"
    file.write_text(textwrap.dedent(text), encoding="utf-8")
    caches = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "plain" / "inductor")}
    return subprocess.run(
        [sys.executable, str(file)],
        env={**os.environ, **caches, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=500,
    )
