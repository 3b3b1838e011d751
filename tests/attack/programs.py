"""Programs that break what Python, and kgprof behind their last line, work with: each ends as plain
Python ends it, and what was seen of it is there."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kgprof.model import Outcome, PassName
from tests.attack.family import Family
from tests.record.passes.test_script_endings import run_by_python
from tests.record.scripted import ran

COUNT = 73
PATIENCE_S = 500.0  # one of them has the lowest priority, beside whatever else runs
SEEN = """
import torch

@torch.compile(backend="eager", dynamic=False)
def doubled(x):
    return x * 2

for number in range(3):
    doubled(torch.ones(2 + number)).sum().item()
print("compiled", flush=True)
"""
# Names of ``builtins`` and ``os`` that Python itself can do without on its way out.
BUILTINS = (
    *("__import__", "open", "len", "isinstance", "print", "getattr", "hasattr", "setattr", "iter"),
    *(
        "next",
        "map",
        "filter",
        "zip",
        "range",
        "sorted",
        "repr",
        "str",
        "int",
        "dict",
        "list",
        "set",
    ),
    *(
        "tuple",
        "bytes",
        "type",
        "super",
        "property",
        "any",
        "all",
        "min",
        "max",
        "sum",
        "id",
        "hash",
    ),
    *("Exception", "OSError", "KeyError", "ValueError", "AttributeError", "StopIteration", "exec"),
    *("BaseException", "ImportError", "MemoryError", "enumerate", "callable", "issubclass", "vars"),
)
OS = (
    *("write", "open", "fork", "replace", "_exit", "rename", "mkdir", "stat", "close", "unlink"),
    *("fspath", "getpid", "path", "environ", "getcwd", "listdir", "remove", "dup", "read", "umask"),
    *("sep", "fsencode", "fsdecode", "makedirs", "lstat", "scandir", "kill", "getenv", "devnull"),
)
LIMITS = (
    *("RLIMIT_AS, (2 ** 20, 2 ** 20)", "RLIMIT_DATA, (2 ** 20, 2 ** 20)"),
    *("RLIMIT_NOFILE, (3, 3)", "RLIMIT_FSIZE, (0, 0)", "RLIMIT_NOFILE, (0, 0)"),
    *("RLIMIT_CORE, (0, 0)", "RLIMIT_STACK, (2 ** 16, 2 ** 16)", "RLIMIT_NPROC, (1, 1)"),
    *("RLIMIT_MEMLOCK, (0, 0)", "RLIMIT_AS, (2 ** 16, resource.RLIM_INFINITY)"),
)
OTHERS = (
    "import sys; sys.modules['os'] = sys.modules['builtins'] = None",
    "import sys; sys.stdout = sys.stderr = open('/dev/full', 'w')",
    "import builtins; vars(builtins).clear()",
    "import os; vars(os).clear()",
    "import sys; sys.exit = sys.exc_info = sys._getframe = None",
    "import atexit; atexit.register = atexit.unregister = None",
    "import signal, os; signal.signal = signal.raise_signal = None; os.kill = None",
    "import time; time.monotonic = time.perf_counter = time.time = None",
    "import threading; threading.Thread.start = threading.Lock = threading.main_thread = None",
    "import traceback; traceback.format_exception = traceback.print_exc = None",
    "import gc; gc.set_threshold(1); gc.freeze()",
    "import sys; sys.setswitchinterval(100.0); sys.dont_write_bytecode = None",
    "import builtins; builtins.__build_class__ = builtins.__debug_flag = None",
    "import os; os.nice(19); os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})",
    "import torch; torch.compile = torch.Tensor.item = torch.ones = None",
    "import os, signal; signal.alarm(1); signal.signal(signal.SIGALRM, lambda *_: os._exit(6)); "
    "signal.pause()",
    "import os; os.closerange(0, 64); [os.open('/dev/null', os.O_RDWR) for _ in range(20)]",
    "import io; io.open = io.TextIOWrapper = io.BytesIO = None",
    "import sys; sys.settrace(lambda *_: 1 / 0)",
    "import sys; sys.setprofile(lambda *_: None); sys.unraisablehook = None",
)


@dataclass(frozen=True)
class Program:
    text: str
    reports: bool = True  # something of it must have been seen


def cases(seed: random.Random) -> Sequence[Program]:
    """73: two to five builtins gone, hard limits, and what else a program may do to itself."""
    made = [Program(text) for text in OTHERS]
    made += [Program(f"import resource; resource.setrlimit(resource.{limit})") for limit in LIMITS]
    while len(made) < COUNT:
        module, names = seed.choice((("builtins", BUILTINS), ("os", OS)))
        broken = seed.sample(names, seed.randint(1, 5))
        how = seed.choice((" = None", " = 3", " = (lambda *a, **k: 1 / 0)"))
        lines = [f"import {module} as m", *(f"m.{name}{how}" for name in broken)]
        if seed.random() < 0.3:
            lines = [lines[0], f"del {', '.join(f'm.{name}' for name in broken)}"]
        made.append(Program("\n".join(lines)))
    return made


def attack(case: Program, folder: Path) -> None:
    text = f"{SEEN}{case.text}\n"
    plain = run_by_python(folder, case.text)

    done = ran(folder, text, passes=(PassName.COMPILE,), timeout_s=PATIENCE_S, ends_as_python=True)

    if plain.returncode != done.exit.exit_code:  # torch's import takes seconds
        plain = run_by_python(folder, text)
    ended = (done.exit.exit_code, done.exit.outcome is Outcome.OK)
    assert ended == (plain.returncode, plain.returncode == 0), (done.exit, plain)
    assert "kgprof/record/" not in done.run.log.split("compiled", 1)[-1], done.run.log
    assert done.run.script is not None
    assert done.compiled.compilations


FAMILY = Family("programs", cases, attack)
