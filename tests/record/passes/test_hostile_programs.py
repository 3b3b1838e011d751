"""A program that does what it likes to its process ends as plain Python ends it, and its own
exception is told whole.

Each is run by Python first; nothing is known about it but what that gives.
"""

from __future__ import annotations

import re
import signal
import stat
import textwrap
from pathlib import Path

import pytest

import kgprof
from kgprof.model import Outcome, PassName
from tests.record.passes.test_script_endings import run_by_python
from tests.record.scripted import Ran, ran

ENDS_WELL = {
    "removed folder": """
        import os, tempfile
        os.chdir(tempfile.mkdtemp())
        os.rmdir(os.getcwd())
        print("no folder", flush=True)
    """,
    "closerange 3": "import os; os.closerange(3, 1024); print('closed', flush=True)",
    "closerange 0": "import os; os.closerange(0, 1024)",
    "reused descriptors": """
        import os, sys, tempfile
        os.closerange(3, 1024)
        files = [tempfile.TemporaryFile() for _ in range(40)]
        import atexit
        atexit.register(lambda: print(sum(os.fstat(file.fileno()).st_size for file in files), flush=True))
    """,  # noqa: E501
    "stdout None": "import sys; print('once', flush=True); sys.stdout = None",
    "stdout closed": "import sys; print('once', flush=True); sys.stdout.close()",
    "stdout a list": "import sys; sys.stdout = []",
    "stderr closed": "import sys; sys.stderr.close(); print('out', flush=True)",
    "both None": "import sys; sys.stdout = sys.stderr = None",
    "surrogate to stdout": "import sys; print(ascii('\\udcff'), flush=True)",
    "exit 256": "import sys; print('once', flush=True); sys.exit(256)",
    "exit None": "import sys; sys.exit(None)",
    "exit True off": "import sys; sys.exit(False)",
    "exit empty": "raise SystemExit",
    "_exit 0": "import os; print('out', flush=True); os._exit(0)",
    "_exit 0 of libc": "import ctypes; print('out', flush=True); ctypes.CDLL(None)._exit(0)",
    "_exit 256": "import os; print('out', flush=True); os._exit(256)",
    "no modules": "import sys; sys.modules.clear()",
    "own modules gone": """
        import sys
        for name in list(sys.modules):
            if name.partition(".")[0] in ("kgprof", "msgspec", "json", "gzip", "pathlib", "torch", "os", "signal"):
                del sys.modules[name]
    """,  # noqa: E501
    "path emptied": "import sys; sys.path.clear(); sys.meta_path.clear(); sys.path_hooks.clear()",
    "settrace": """
        import sys
        seen = []
        def trace(frame, event, arg):
            seen.append(event)
            return trace
        sys.settrace(trace)
        def f(): return 1
        f()
        print(len(seen) > 0, flush=True)
    """,
    "settrace that raises": """
        import sys
        def trace(frame, event, arg):
            if frame.f_code.co_filename != __file__:
                raise RuntimeError("no frame but mine")
            return trace
        sys.settrace(trace)
    """,
    "forks": """
        import os
        child = os.fork()
        if child == 0:
            print("child", flush=True)
            raise SystemExit(3)
        print(os.waitpid(child, 0)[1], flush=True)
    """,
    "forked child ends by _exit": """
        import os
        child = os.fork()
        if child == 0:
            os._exit(3)
        print(os.waitpid(child, 0)[1], flush=True)
    """,
    "execs": "import os, sys; os.execv(sys.executable, [sys.executable, '-c', 'print(\"other\")'])",
    "few descriptors": (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3)); "
        "print('out', flush=True)"
    ),
    "no file may grow": """
        import resource, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        print("out", flush=True)
    """,
    "no memory": """
        import resource
        print("out", flush=True)
        resource.setrlimit(resource.RLIMIT_AS, (2**20, 2**20))
    """,
    "chdir": "import os; os.chdir('/'); print(os.getcwd(), flush=True)",
    "umask": "import os; os.umask(0o777); print('out', flush=True)",
    "recursion limit": "import sys; sys.setrecursionlimit(60); print('out', flush=True)",
    "daemonizes": """
        import os, sys
        if os.fork():
            os._exit(0)
        os.setsid()
        if os.fork():
            os._exit(0)
        os.closerange(0, 1024)
        os.open(os.devnull, os.O_RDWR); os.dup2(0, 1); os.dup2(0, 2)
        print("nobody hears it", flush=True)
    """,
    "daemon's descriptors": """
        import os, sys
        os.setsid() if os.getpid() != os.getsid(0) else None
        os.closerange(0, 1024)
        os.open(os.devnull, os.O_RDWR); os.dup2(0, 1); os.dup2(0, 2)
        print("nobody hears it", flush=True)
    """,
    "atexit raises": """
        import atexit
        atexit.register(lambda: 1 / 0)
        print("out", flush=True)
    """,
    "atexit exits": """
        import atexit, sys
        atexit.register(sys.exit, 5)
        print("out", flush=True)
    """,
    "atexit cleared": "import atexit; atexit._clear(); print('out', flush=True)",
    "signals": """
        import signal
        for number in signal.valid_signals():
            try:
                signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError):
                pass
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        print("out", flush=True)
    """,
    "time stands still": (
        "import time; time.monotonic = time.time = time.perf_counter_ns = lambda: 0"
    ),
    "no clock": "import time; time.monotonic = time.perf_counter = time.time = None",
    "no files": "import io; io.open = io.TextIOWrapper = io.BytesIO = None",
    "no trace functions": "import sys; sys.settrace = sys.gettrace = None",
    "no builtins": "import builtins; vars(builtins).clear()",
    "open is gone": "import builtins; del builtins.open, builtins.print",
    "environment cleared": "import os; os.environ.clear(); print('out', flush=True)",
    "gc off": "import gc, sys; gc.disable(); sys.excepthook = None; print('out', flush=True)",
    "getpid lies": "import os; os.getpid = lambda: 1; print('out', flush=True)",
    "warnings are errors": (
        "import warnings; warnings.simplefilter('error'); print('out', flush=True)"
    ),
    "threads at its end": """
        import threading, time
        threading.Thread(target=lambda: (time.sleep(0.3), print("late", flush=True))).start()
    """,
    "default timeout": "import socket; socket.setdefaulttimeout(0.001); print('out', flush=True)",
    "codecs": "import locale; locale.setlocale = None; print('out', flush=True)",
    "a file with a surrogate": r"open('/tmp/\udcff-kgprof', 'w').close(); import os; os.unlink('/tmp/\udcff-kgprof')",  # noqa: E501
}
ENDS_BADLY = {
    "exit text": "import sys; sys.exit('its last words')",
    "exit surrogate": "import sys; sys.exit('its last \\udcff words')",
    "exit -1": "import sys; sys.exit(-1)",
    "exit huge": "import sys; sys.exit(10 ** 30)",
    "exit an object": "import sys; sys.exit(['a', 1])",
    "exit subclass": """
        import sys
        class Leave(SystemExit): pass
        raise Leave("bye")
    """,
    "exit without stderr": "import sys; sys.stderr = None; sys.exit('nobody reads it')",
    "exit what cannot be said": """
        import sys
        class Silent:
            def __str__(self): raise ValueError("no")
        sys.exit(Silent())
    """,
    "_exit 7": "import os; os._exit(7)",
    "_exit 7 of libc": "import ctypes; ctypes.CDLL(None)._exit(7)",
    "surrogate in an exception": "raise ValueError('not text: \\udcff')",
    "surrogate in a file's name": "open('/nowhere/\\udcff')",
    "exception without words": """
        class Silent(Exception):
            def __str__(self): raise ValueError("no")
        raise Silent
    """,
    "keyboard interrupt": "raise KeyboardInterrupt",
    "keyboard interrupt by signal": "import os, signal; os.kill(os.getpid(), signal.SIGINT)",
    "removed folder": """
        import os, tempfile
        os.chdir(tempfile.mkdtemp())
        os.rmdir(os.getcwd())
        raise ValueError("its own")
    """,
    "closerange 3": "import os; os.closerange(3, 1024); raise ValueError('its own')",
    "closerange 0": "import os; os.closerange(0, 1024); raise ValueError('nobody hears it')",
    "no stderr": "import sys; sys.stderr = None; raise ValueError('nobody hears it')",
    "no modules": "import sys; sys.modules.clear(); raise ValueError('its own')",
    "no builtins": "import builtins; vars(builtins).clear(); no_such_name",
    "keyboard interrupt, few builtins": """
        import builtins
        mine = KeyboardInterrupt
        builtins.isinstance = builtins.any = builtins.hasattr = builtins.exec = None
        raise mine
    """,
    "no register": """
        import atexit, traceback
        traceback.format_exception = atexit.register = None
        raise LookupError("its own")
    """,
    "recursion": "def f(): f()\nf()",
    "recursion limit": "import sys; sys.setrecursionlimit(60); raise ValueError('its own')",
    "excepthook": (
        "import sys; sys.excepthook = lambda *a: print('hooked', a[1]); raise ValueError('its own')"
    ),
    "excepthook raises": (
        "import sys; sys.excepthook = lambda *a: 1 / 0; raise ValueError('its own')"
    ),
    "excepthook exits": (
        "import sys; sys.excepthook = lambda *a: sys.exit(4); raise ValueError('its own')"
    ),
    "excepthook is none": "import sys; sys.excepthook = None; raise ValueError('its own')",
    "no excepthook": "import sys; del sys.excepthook; raise ValueError('its own')",
    "a group": "raise ExceptionGroup('several', [ValueError('one'), KeyError('two')])",
    "its cause": (
        "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise "
        "ValueError('its own') from error"
    ),
    "syntax": "x = = 1",
    "killed": "import os; os.kill(os.getpid(), 9)",
    "terminated": "import os; os.kill(os.getpid(), 15)",
    "aborted": "import os; os.abort()",
    "execs what fails": (
        "import os, sys; os.execv(sys.executable, [sys.executable, '-c', 'raise SystemExit(9)'])"
    ),
    "memory": "raise MemoryError",
    "generator exit": "raise GeneratorExit('its own')",
    "few descriptors": (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3)); open('/dev/null')"
    ),
}


SHADOWED = """
import os, sys
import msgspec, json, click, time, traceback, gzip, typing_extensions
mine = (click, traceback, gzip, typing_extensions)
print(msgspec.__file__, json.__file__, time.sleep, *(module.mine for module in mine), flush=True)
sys.path.insert(0, "/nowhere")
import numbers, csv
"""
COMPILED = """
import torch

@torch.compile(backend="eager", dynamic=False)
def doubled(x):
    return x * 2

for number in range(3):
    doubled(torch.ones(2 + number)).sum().item()
"""
# What no recording can be made of: Python's own ending is left out, or nothing can be opened or
# written any more.
UNSEEN = ("_exit 0 of libc", "few descriptors", "no file may grow")
# They end before a last write: what stands is from the beginning of a step, half a second ago or
# more.
CUT_OFF = ("_exit", "exec", "killed", "terminated", "aborted")
# Python forgets that it was interrupted, and exits with 1, where something executes text on its way
# out. Dynamo does.
INTERRUPTED = ("bad keyboard interrupt", "bad keyboard interrupt by signal")
# What torch's handlers print in an interpreter without modules, or with such a trace function,
# differs by the run.
WRECKED = ("no modules", "bad no modules", "settrace that raises")
# One of a kind: of descriptors, streams, limits, what Python needs to end, and how it ends.
QUICK = (
    *("removed folder", "closerange 0", "stdout None", "own modules gone", "execs", "no memory"),
    *("no clock", "no trace functions", "no file may grow", "atexit cleared"),
    *("bad no builtins", "bad keyboard interrupt, few builtins"),
)
# Its excepthook fails or is gone, or faulthandler prints all frames: the text is whole, and
# kgprof's frames are in it.
NAMES_KGPROF = (
    "bad excepthook raises",
    "bad excepthook is none",
    "bad no excepthook",
    "bad aborted",
)
PROGRAMS = {**ENDS_WELL, **{f"bad {name}": text for name, text in ENDS_BADLY.items()}}


def same_as_plain(
    folder: Path,
    text: str,
    *,
    seen: bool = True,
    names_kgprof: bool = False,
    wrecked: bool = False,
    code: int | None = None,
) -> Ran:
    plain = run_by_python(folder, text)

    done = ran(folder, text, passes=(PassName.COMPILE,), ends_as_python=True)

    assert done.exit.exit_code == (plain.returncode if code is None else code), (done.exit, plain)
    assert (done.exit.outcome is Outcome.OK) == (plain.returncode == 0), done.exit
    printed, echoed = (
        re.sub("0x[0-9a-f]+|repeated [0-9]+", "", text).splitlines()
        for text in (plain.stdout, done.echoed)
    )
    shown = iter(echoed)  # torch, which kgprof has imported, may have more to say
    assert wrecked or all(line in shown for line in printed), (printed, echoed)
    assert done.echoed in done.run.log
    assert (str(Path(kgprof.__file__).parent) not in done.run.log) or names_kgprof
    if "its own" in plain.stdout:
        assert "its own" in done.exit.message
    assert (done.run.script is not None) or not seen
    return done


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param(n, t, id=n, marks=() if n in QUICK else pytest.mark.long)
        for n, t in PROGRAMS.items()
    ],
)
def test_a_program_ends_as_python_ends_it(tmp_path: Path, name: str, text: str) -> None:
    seen = not name.removeprefix("bad ").startswith(
        (*UNSEEN, "exec", "kill", "term", "ab", "_exit 7 of")
    )
    same_as_plain(tmp_path, text, seen=seen, names_kgprof=name in NAMES_KGPROF)


@pytest.mark.long
@pytest.mark.parametrize(("name", "text"), [pytest.param(n, t, id=n) for n, t in PROGRAMS.items()])
def test_so_does_one_that_compiles_before(tmp_path: Path, name: str, text: str) -> None:
    if name.startswith("bad syntax"):
        return
    code = -signal.SIGINT if name in INTERRUPTED else None
    settings = {
        "seen": False,
        "names_kgprof": name in NAMES_KGPROF,
        "wrecked": name in WRECKED,
        "code": code,
    }
    done = same_as_plain(tmp_path, COMPILED + textwrap.dedent(text), **settings)
    if done.run.script is not None and not name.removeprefix("bad ").startswith(
        (*UNSEEN, *CUT_OFF)
    ):
        assert len(done.compiled.compilations) == 3


def test_modules_beside_it_are_its_own(tmp_path: Path) -> None:
    for name in (
        "msgspec",
        "json",
        "click",
        "time",
        "traceback",
        "gzip",
        "typing_extensions",
        "numbers",
        "csv",
    ):
        (tmp_path / f"{name}.py").write_text("mine = __name__\n", encoding="utf-8")

    done = same_as_plain(tmp_path, SHADOWED)

    assert (
        f"{tmp_path}/msgspec.py {tmp_path}/json.py <built-in function sleep> click traceback"
        in done.echoed
    )


def test_a_lone_surrogate_is_told_as_python_tells_it(tmp_path: Path) -> None:
    done = same_as_plain(tmp_path, "raise ValueError('its own, not text: \\udcff')")

    assert done.exit.message == "ValueError: its own, not text: \\udcff"


def test_the_programs_umask_is_not_the_recordings(tmp_path: Path) -> None:
    done = same_as_plain(tmp_path, "import os; os.umask(0o777); print('out', flush=True)")

    assert {
        stat.S_IMODE(file.stat().st_mode) & 0o400
        for file in done.folder.rglob("*")
        if file.is_file()
    } == {0o400}
