"""One command line of kgprof in this process, and what is wrong with how it ended.

Files of others may cost an error with a documented exit code and nothing else: no traceback, no
warning of numpy's, no text that is not a number where a number belongs, and a bounded time.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import re
import signal
import time
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kgprof import cli
from kgprof.errors import (
    EXIT_GATE_FAILED,
    EXIT_INCONCLUSIVE,
    EXIT_NOTHING_MEASURED,
    EXIT_OK,
    EXIT_USAGE,
    EXIT_WORKLOAD,
)

SECONDS = 20.0  # of a processor, for one command line
DOCUMENTED = {
    "compare": (
        *(EXIT_OK, EXIT_GATE_FAILED, EXIT_USAGE, EXIT_WORKLOAD),
        *(EXIT_NOTHING_MEASURED, EXIT_INCONCLUSIVE),
    ),
    "report": (EXIT_OK, EXIT_USAGE),
    "trace": (EXIT_OK, EXIT_USAGE, EXIT_NOTHING_MEASURED),
}
OTHERWISE = (EXIT_OK, EXIT_USAGE)
NO_NUMBER = re.compile(r"(?<![\w.-])-?(?:nan|inf)(?![\w.-])")
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@dataclass(frozen=True, kw_only=True)
class Ended:
    arguments: tuple[str, ...]
    code: int
    out: str
    said: str  # on stderr
    seconds: float  # of a processor

    @property
    def fault(self) -> str:
        """What is wrong with it; empty if nothing is."""
        if self.code not in DOCUMENTED.get(self.arguments[0], OTHERWISE):
            return f"exit code {self.code}: {self.said[-300:].strip()}"
        errors = self.said.count("kgprof: error: ")
        if self.code == EXIT_USAGE and errors != 1:
            return f"{errors} errors: {self.said[-300:].strip()}"
        if "Traceback" in self.said or "Warning:" in self.said:
            return f"stderr: {self.said[-300:].strip()}"
        if found := NO_NUMBER.search(self.out):
            at = max(0, found.start() - 60)
            return f"no number: {self.out[at : found.end() + 30]!r}"
        if found := CONTROL.search(self.said):
            return f"a control character on stderr: {found[0]!r}"
        if self.seconds > SECONDS:
            return f"{self.seconds:.0f} s"
        return ""


def ask(*arguments: str | Path) -> Ended:
    words = tuple(str(each) for each in arguments)
    out, said = (
        io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="replace", write_through=True)
        for _ in range(2)
    )
    began = time.process_time()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said), _ended_after(SECONDS):
        code = cli.run(words)
    seconds = time.process_time() - began
    gc.collect(0)
    texts = [stream.buffer.getvalue().decode() for stream in (out, said)]  # type: ignore[attr-defined]
    return Ended(arguments=words, code=code, out=texts[0], said=texts[1], seconds=seconds)


@contextlib.contextmanager
def _ended_after(seconds: float) -> Iterator[None]:
    """An exception after twice as many seconds of a processor: kgprof says it as an internal
    error."""

    def end(number: int, frame: types.FrameType | None) -> None:
        raise TimeoutError(f"it took more than {2 * seconds:.0f} s")

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, 2 * seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def counted(faults: Sequence[tuple[str, str]], tried: int) -> str:
    """A line for a log: how many were tried, and each that failed."""
    lines = [f"{tried:,} tried, {len(faults):,} failed", *(": ".join(each) for each in faults)]
    return os.linesep.join(lines)
