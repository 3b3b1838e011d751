"""A question that a child of its own answers: what a verb asks that tries many things, of which
some die or hang.

The function that answers is ``(question, options, write) -> None``: ``question`` is the JSON of the
struct that was asked, ``write`` takes a struct and may be called several times, each answer in
place of the one before it.
"""

import math
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from kgprof import model as m
from kgprof.record.ground.job import Checkout, Failed, Job, Task
from kgprof.record.processes import children

LOG_CHARS = 200_000  # of the end of what the child printed
TIME_UP = m.Skipped("the time was up (--minutes; --resume goes on)")

Answer = TypeVar("Answer")
Write = Callable[[m.Model], None]  # takes an answer, in place of the one before it


class Trial(m.Model):
    """How the child ended, and what it had answered by then."""

    exit: m.Exit
    answer: bytes | None  # the JSON of the last answer
    log: str  # the end of what it printed; after a time-out with the Python stack of every thread
    failed: Failed | None = None  # the exception that ended it
    interrupted: bool = False  # by Ctrl-C or another signal to kgprof: nothing more is to be tried
    time_up: bool = False  # ``until`` came before its own time limit


def run(
    function: str,
    question: m.Model,
    *,
    options: m.Options,
    scratch: Path,
    caches: children.Caches,
    until: float = math.inf,
    on_phase: Callable[[str], None] = lambda name: None,
    on_timeout: Callable[[int], None] = lambda pid: None,
    checkout: Checkout | None = None,
) -> Trial:
    """Ask ``function`` ("package.module:name") in a child with these compiler caches; it has
    ``options.timeout_s`` seconds, and ends at ``until``, of ``time.monotonic``. The child runs in
    ``checkout``, or where kgprof was started.

    ``on_timeout`` is given the child that has none left, before it is ended. Nothing that the child
    started is left when this returns. Raises OSError where ``scratch`` cannot be written.
    """
    if (left_s := until - time.monotonic()) <= 0:
        return Trial(exit=m.Exit(m.Outcome.TIMED_OUT), answer=None, log="", time_up=True)
    limited = msgspec.structs.replace(options, timeout_s=min(options.timeout_s, left_s))
    given = _start(function, question, limited, scratch, caches, checkout)
    given = msgspec.structs.replace(given, on_phase=on_phase)
    found = _trial(given, children.run(given, on_timeout=on_timeout))
    timed_out = found.exit.outcome is m.Outcome.TIMED_OUT
    return msgspec.structs.replace(found, time_up=timed_out and left_s < options.timeout_s)


def run_beside(function: str, questions: Sequence[m.Model], **given: Any) -> list[Trial]:
    """Ask as ``run`` does, two at a time. After a signal there may be fewer answers."""
    starts = [_start(function, each, **given) for each in questions]
    return list(map(_trial, starts, children.run_beside(starts)))


def _start(
    function: str,
    question: m.Model,
    options: m.Options,
    scratch: Path,
    caches: children.Caches,
    checkout: Checkout | None,
) -> children.Start:
    folder = Path(tempfile.mkdtemp(dir=scratch, prefix="trial-"))
    job = Job(
        task=Task.TRIAL,
        options=options,
        parent_pid=os.getpid(),
        answer=str((folder / "answer.json").resolve()),
        function=function,
        question=m.encode_json(question).decode(),
        checkout=checkout,
    )
    return children.Start(job=job, scratch=folder, log=folder / "log.txt", caches=caches)


def _trial(given: children.Start, ended: children.Ended) -> Trial:
    answer = Path(given.job.answer)
    return Trial(
        exit=ended.exit,
        answer=answer.read_bytes() if answer.exists() else None,
        log=given.log.read_text("utf-8", errors="replace")[-LOG_CHARS:],
        failed=ended.failed,
        interrupted=ended.interrupted,
    )


@dataclass(frozen=True, kw_only=True)
class CellTrials:
    """What is tried on one cell of a sweep; all of it ends at ``until``, of ``time.monotonic``."""

    options: m.Options
    strategy: str
    cell: m.Cell
    device: str
    scratch: Path
    caches: children.Caches
    until: float = math.inf
    on_phase: Callable[[str], None] = lambda name: None

    def answered(
        self,
        function: str,
        question: m.Model,
        kind: type[Answer],
        caches: children.Caches | None = None,
    ) -> Answer | m.Skipped:
        """What a trial left, or how it ended without an answer. Raises KeyboardInterrupt where a
        signal came."""
        caches = caches or self.caches
        trial = run(
            function,
            question,
            options=self.options,
            scratch=self.scratch,
            caches=caches,
            until=self.until,
        )
        if trial.interrupted:
            raise KeyboardInterrupt
        if trial.answer is None:
            words = msgspec.structs.replace(trial.exit, during="").words
            return TIME_UP if trial.time_up else m.Skipped(f"the process {words}")
        kinds: Any = kind | m.Skipped
        answer: Answer | m.Skipped = m.decode_json(trial.answer, kinds)
        return answer
