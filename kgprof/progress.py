"""What the user sees on stderr: a line, and while children work a live one on a terminal, else a plain one a phase."""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import AbstractContextManager
from typing import Any, Protocol, TextIO

import click

from kgprof import model as m

REFRESHES_PER_SECOND = 2  # beside a child that is being timed


def tell(text: str, stream: TextIO | None = None) -> None:
    """A line on stderr. Whoever read it may have gone (``2>&1 | head``): the work goes on, and its exit code stands."""
    stream = sys.stderr if stream is None else stream
    if stream is None:  # closed by who started us
        return
    try:
        click.echo(text, file=stream)
    except OSError:
        discard(stream)


def discard(stream: TextIO) -> None:
    """Into nothing with what is still buffered: it would raise once more when Python closes the stream."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class Progress(Protocol):
    """Told of each phase, from any thread, and what a run gave once it is measured."""

    def phase(self, name: str, key: m.RunKey | None) -> None: ...
    def result(self, text: str, key: m.RunKey) -> None: ...


def choose(*, quiet: bool, live: bool = True, stream: TextIO | None = None) -> AbstractContextManager[Progress]:
    """Silence, plain lines (a pipe, CI, a dumb terminal), or a live line; to be entered while it is recorded."""
    stream = sys.stderr if stream is None else stream
    if quiet or stream is None:  # stderr is None where it was closed by who started us
        return Silent()
    live = live and stream.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("CI")
    return Live(stream) if live else Plain(stream)


class Silent(AbstractContextManager["Silent"]):
    def __exit__(self, *_: object) -> None:
        return None

    def phase(self, name: str, key: m.RunKey | None) -> None:
        return None

    def result(self, text: str, key: m.RunKey) -> None:
        return None


class Plain(Silent):
    """``kgprof:   12.3 s  fused.default  timing`` when a phase begins; the time is since the command began."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._began = time.monotonic()

    def phase(self, name: str, key: m.RunKey | None) -> None:
        tell(_line(time.monotonic() - self._began, name, key), self._stream)

    def result(self, text: str, key: m.RunKey) -> None:
        tell(f"kgprof: {key.slug}: {text}", self._stream)


class Live:
    """The phases that are over, each with the seconds it took, and a spinner with the one that is running."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import Progress as Bars
        from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

        self._bars = Bars(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
            console=Console(file=stream),
            transient=True,
            refresh_per_second=REFRESHES_PER_SECOND,
        )
        self._lock = threading.Lock()
        self._running: tuple[str, m.RunKey | None, float] | None = None
        self._task = self._bars.add_task("starting", total=None)

    def __enter__(self) -> Live:
        self._bars.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        with self._lock:
            self._finish()
        self._bars.__exit__(*raised)

    def phase(self, name: str, key: m.RunKey | None) -> None:
        with self._lock:
            self._finish()
            self._running = (name, key, time.monotonic())
            self._bars.reset(self._task, description=_what(name, key), total=None)

    def result(self, text: str, key: m.RunKey) -> None:
        with self._lock:
            self._finish()
            self._print(f"kgprof: {key.slug}: {text}")

    def _finish(self) -> None:
        if self._running is not None:
            name, key, began = self._running
            self._print(_line(time.monotonic() - began, name, key))
            self._running = None

    def _print(self, line: str) -> None:
        self._bars.console.print(line, markup=False, highlight=False)


def _line(seconds: float, name: str, key: m.RunKey | None) -> str:
    return f"kgprof: {seconds:7.1f} s  {_what(name, key)}"


def _what(name: str, key: m.RunKey | None) -> str:
    return f"{key.slug}  {name}" if key is not None else name
