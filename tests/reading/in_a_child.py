"""Runs command lines of kgprof, each in a fork of one process that has imported all of it: a line
of JSON asks for one, a line of JSON says how it ended. A fork may take ``MEMORY_BYTES`` of address
space, ``SECONDS`` of a processor and ``WAITED_SECONDS`` in all.

    python -m tests.reading.in_a_child
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MEMORY_BYTES = 6 * 2**30
SECONDS = 200
WAITED_SECONDS = 3000  # the machine may be busy; what waits for a pipe is seen all the same


@dataclass(frozen=True, kw_only=True)
class Ended:
    """``code`` is None where a signal or a limit ended it."""

    code: int | None
    said: str  # on stdout and stderr
    seconds: float  # of a processor, because others use the machine too
    peak_bytes: int


class Runner:
    """Starts the process; ``run`` is one command line in one working directory."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.reading.in_a_child"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )

    def run(self, folder: Path, arguments: Sequence[str | Path]) -> Ended:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(
            json.dumps([str(folder), [str(each) for each in arguments]]) + "\n"
        )
        self._process.stdin.flush()
        return Ended(**json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        self._process.communicate()


def _in_a_fork(folder: str, arguments: list[str]) -> dict[str, Any]:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        signal.alarm(WAITED_SECONDS)
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        os.chdir(folder)
        said = io.BytesIO()
        stream = io.TextIOWrapper(said, encoding="utf-8", errors="replace", write_through=True)
        with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
            code = cli.run(arguments)
        with os.fdopen(writing, "w", encoding="utf-8") as answer:
            json.dump({"code": code, "said": said.getvalue().decode()}, answer)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as answer:
        text = answer.read()
    _, _, used = os.wait4(child, 0)
    ended = json.loads(text) if text else {"code": None, "said": "ended by a signal or a limit"}
    return {**ended, "seconds": used.ru_utime + used.ru_stime, "peak_bytes": used.ru_maxrss * 1024}


if __name__ == "__main__":
    from kgprof import cli

    for line in sys.stdin:
        sys.stdout.write(json.dumps(_in_a_fork(*json.loads(line))) + "\n")
        sys.stdout.flush()
