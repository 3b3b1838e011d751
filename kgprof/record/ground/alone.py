"""Children that run at once, of which one at a time has the machine to itself: while it times, the
others stand still.

A file for each of them, by its process's number, lies in one folder. Who times holds a lock there
and stops the process groups of the others; kgprof holds it while it starts a child and after one
has ended, also in the middle of its times.
"""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

LOCK = "lock"


@contextlib.contextmanager
def alone(folder: str) -> Iterator[None]:
    """Of a child; one that is given no folder is alone already."""
    if not folder:
        yield
        return
    with locked(Path(folder)):
        _signal_others(Path(folder), signal.SIGSTOP)
        try:
            yield
        finally:
            _signal_others(Path(folder), signal.SIGCONT)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """No child has the machine to itself."""
    import fcntl

    with (folder / LOCK).open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            # a process that was forked meanwhile holds the file too
            fcntl.flock(file, fcntl.LOCK_UN)


def has_ended(folder: Path, pid: int) -> None:
    """It may have stopped the others."""
    with locked(folder):
        (folder / str(pid)).unlink()
        _signal_others(folder, signal.SIGCONT)


def _signal_others(folder: Path, number: signal.Signals) -> None:
    for file in folder.glob("[0-9]*"):
        if int(file.name) != os.getpid():
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.killpg(int(file.name), number)
