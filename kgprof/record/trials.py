"""A question that a child of its own answers: what a verb asks that tries many things, of which some die or hang.

The function that answers is ``(question, options, write) -> None``: ``question`` is the JSON of the struct that was
asked, ``write`` takes a struct and may be called several times, each answer in place of the one before it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kgprof import model as m
from kgprof.record import children
from kgprof.record.job import Job, Task

LOG_CHARS = 200_000  # of the end of what the child printed


@dataclass(frozen=True, kw_only=True)
class Trial:
    """How the child ended, and what it had answered by then."""

    exit: m.Exit
    answer: bytes | None  # the JSON of the last answer
    log: str  # the end of what it printed; after a time-out with the Python stack of every thread
    interrupted: bool = False  # by Ctrl-C or another signal to kgprof: nothing more is to be tried


def run(
    function: str,
    question: m.Model,
    *,
    options: m.Options,
    scratch: Path,
    caches: children.Caches,
    timeout_s: float,
    on_phase: Callable[[str], None] = lambda name: None,
) -> Trial:
    """Ask ``function`` ("package.module:name") in a child with these compiler caches; it has ``timeout_s`` seconds.

    Nothing that the child started is left when this returns. Raises OSError where ``scratch`` cannot be written.
    """
    folder = Path(tempfile.mkdtemp(dir=scratch, prefix="trial-"))
    answer, log = folder / "answer.json", folder / "log.txt"
    job = Job(
        task=Task.TRIAL,
        options=msgspec.structs.replace(options, timeout_s=timeout_s),
        parent_pid=os.getpid(),
        answer=str(answer),
        function=function,
        question=m.encode_json(question).decode(),
    )
    ended = children.run(job, scratch=folder, log=log, caches=caches, on_phase=on_phase)
    return Trial(
        exit=ended.exit,
        answer=answer.read_bytes() if answer.exists() else None,
        log=log.read_text("utf-8", errors="replace")[-LOG_CHARS:],
        interrupted=ended.interrupted,
    )
