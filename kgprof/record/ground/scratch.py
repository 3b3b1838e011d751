"""A scratch folder that nothing outlives, and no process either: not even where kgprof is killed
outright.

A process of its own waits for the end of a pipe. Then it ends what still has the folder's name in
its environment, wherever it went, and deletes the folder. It is started by this file's path, and
imports nothing of kgprof.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

FOR_S = 5.0  # of ending processes that start others meanwhile
CLEARED_S = 10.0  # for a folder with many files


@contextlib.contextmanager
def scratch_folder(prefix: str, work_tree: str = "") -> Iterator[Path]:
    """Deleted on leaving. What is started in between must have its path in some variable of its
    environment.

    ``work_tree``: the name in it of a work tree of the git repository here, which forgets it then.
    """
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as folder:
        guard = subprocess.Popen(
            [
                sys.executable,
                "-I",
                "-S",
                __file__,
                folder,
                *([os.getcwd(), work_tree] if work_tree else []),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
        assert guard.stdin is not None
        try:
            yield Path(folder)
        finally:
            guard.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):  # it goes on by itself
                guard.wait(CLEARED_S)


def main(folder: str, repository: str = "", work_tree: str = "") -> None:
    """The process that waits."""
    for number in {signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGINT)}:
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    until = time.monotonic() + FOR_S
    while (found := list(_marked(os.fsencode(folder)))) and time.monotonic() < until:
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    if work_tree:  # by its path, because `git worktree prune` forgets those of others as well
        remove = [
            "git",
            "-C",
            repository,
            "worktree",
            "remove",
            "--force",
            "--force",
            os.path.join(folder, work_tree),
        ]
        # git has gone away; its own clean-up forgets the tree in three months
        with contextlib.suppress(OSError):
            subprocess.run(remove, check=False)
    shutil.rmtree(folder, ignore_errors=True)


def _marked(mark: bytes) -> Iterator[int]:
    """Processes with ``mark`` in their environment, where there is a /proc; a zombie has none."""
    for entry in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if entry.isdecimal():
            with contextlib.suppress(OSError):  # it has ended, or is another user's
                if mark in Path("/proc", entry, "environ").read_bytes():
                    yield int(entry)


if __name__ == "__main__":
    main(*sys.argv[1:])
