"""What the user sees on stderr while children work: one live table on a terminal, else a plain line
per phase."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TextIO

import click

from kgprof import model as m

if TYPE_CHECKING:
    from rich.console import Group

REFRESHES_PER_SECOND = 2  # beside a child that is being timed
_WORDS = {
    "plan": "loading the workload",
    "prepare": "starting the process",
    "agreement": "comparing results",
}
_ROWS = 12  # of the table: those around the run that is measured
_RESULT_FROM = 110  # columns of a terminal that has room for what each run gave


def tell(text: str, stream: TextIO | None = None) -> None:
    """A line on stderr. Whoever read it may have gone (``2>&1 | head``): the work goes on, and its
    exit code stands."""
    stream = sys.stderr if stream is None else stream
    if stream is None:  # closed by who started us
        return
    try:
        click.echo(text, file=stream)
    except OSError:
        discard(stream)


def discard(stream: TextIO) -> None:
    """Into nothing with what is still buffered: it would raise once more when Python closes the
    stream."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class Progress(Protocol):
    """Told of each phase, from any thread, of what a run gave once it is measured (``short``: for a
    column), and in advance which runs in which passes are to come. ``beside``: other runs go on; an
    empty name: this one has ended."""

    def expect(self, runs: Sequence[m.RunKey], passes: Sequence[str]) -> None: ...
    def phase(self, name: str, key: m.RunKey | None, *, beside: bool = False) -> None: ...
    def result(self, text: str, key: m.RunKey, *, short: str = "") -> None: ...


def choose(
    *, quiet: bool, live: bool = True, verbose: bool = False, stream: TextIO | None = None
) -> AbstractContextManager[Progress]:
    """Silence, plain lines (a pipe, CI, a dumb terminal, ``verbose``), or a live table; entered to
    record."""
    stream = sys.stderr if stream is None else stream
    if quiet or stream is None:  # stderr is None where it was closed by who started us
        return Silent()
    return Live(stream) if live and not verbose and is_terminal(stream) else Plain(stream)


def is_terminal(stream: TextIO | None) -> bool:
    """Somebody looks at it, and it can do more than lines."""
    return (
        stream is not None
        and stream.isatty()
        and os.environ.get("TERM") != "dumb"
        and not os.environ.get("CI")
    )


class Silent(AbstractContextManager["Silent"]):
    def __exit__(self, *_: object) -> None:
        return None

    def expect(self, runs: Sequence[m.RunKey], passes: Sequence[str]) -> None:
        return None

    def phase(self, name: str, key: m.RunKey | None, *, beside: bool = False) -> None:
        return None

    def result(self, text: str, key: m.RunKey, *, short: str = "") -> None:
        return None


class Plain(Silent):
    """``kgprof:   12.3 s  fused.default  timing`` when a phase begins; the time is since the
    command began."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._began = time.monotonic()

    def phase(self, name: str, key: m.RunKey | None, *, beside: bool = False) -> None:
        if name:
            tell(_line(time.monotonic() - self._began, name, key), self._stream)

    def result(self, text: str, key: m.RunKey, *, short: str = "") -> None:
        tell(f"kgprof: {key.slug}: {text}", self._stream)


class Live:
    """A table of runs by passes, with what each took, and below it the time that has passed and is
    left; gone at the end, when the result is shown in its place."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live as Screen

        self._console = Console(file=stream, highlight=False, markup=False, emoji=False)
        self._lock = threading.RLock()
        self._began = time.monotonic()
        self._runs: list[m.RunKey] = []
        self._passes: tuple[str, ...] = ()
        self._took: dict[m.RunKey, dict[str, float]] = {}
        self._gave: dict[m.RunKey, str] = {}
        # the phase, and when it began; the latest last
        self._running: dict[m.RunKey | None, tuple[str, float]] = {}
        self._screen = Screen(
            console=self._console,
            transient=True,
            refresh_per_second=REFRESHES_PER_SECOND,
            get_renderable=self._table,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> Live:
        self._screen.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._screen.__exit__(*raised)

    def expect(self, runs: Sequence[m.RunKey], passes: Sequence[str]) -> None:
        with self._lock:
            self._runs, self._passes = [*runs], tuple(map(str, passes))

    def phase(self, name: str, key: m.RunKey | None, *, beside: bool = False) -> None:
        with self._lock:
            for one in [key] if beside else list(self._running):
                self._finish(one)
            if key is not None and key not in self._runs:
                self._runs.append(key)
            if name:
                self._running[key] = (name, time.monotonic())

    def result(self, text: str, key: m.RunKey, *, short: str = "") -> None:
        with self._lock:
            self._gave[key] = short or text

    def _finish(self, key: m.RunKey | None) -> None:
        name, began = self._running.pop(key, ("", 0.0))
        if key is not None and name:
            spent = self._took.setdefault(key, {})
            spent[name] = spent.get(name, 0.0) + time.monotonic() - began

    # ---------------------------------------------------------------- what is drawn

    def _table(self) -> Group:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        with self._lock:
            now = time.monotonic()
            wide = self._console.width >= _RESULT_FROM
            columns = self._passes or ("phase",)
            table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
            table.add_column("run", no_wrap=True, overflow="ellipsis", ratio=1)
            for name in columns:
                table.add_column(name, justify="right" if self._passes else "left", no_wrap=True)
            if wide and self._passes:
                table.add_column("result", no_wrap=True, overflow="ellipsis")
            for key in self._shown():
                cells = [self._cell(key, name, now) for name in columns]
                gave = (self._gave.get(key, ""),) if wide and self._passes else ()
                table.add_row(key.slug, *cells, *gave, style="bold" if key in self._running else "")
            foot = Text(self._foot(now), overflow="ellipsis", no_wrap=True)
            return Group(table, foot) if self._runs else Group(foot)

    def _shown(self) -> list[m.RunKey]:
        """All runs, or as many around the one that is measured as there is room for."""
        here = next(reversed(self._running), None)
        at = self._runs.index(here) if here in self._runs else 0
        room = max(3, min(_ROWS, self._console.height - 4))
        start = max(0, min(at - room // 2, len(self._runs) - room))
        return self._runs[start : start + room]

    def _cell(self, key: m.RunKey, name: str, now: float) -> str:
        spent = self._took.get(key, {})
        running, began = self._running.get(key, ("", now))
        if not self._passes:
            total = seconds(sum(spent.values()) + now - began)
            return f"{said(running)}, {total}" if running else f"done, {total}"
        if running.rpartition(": ")[2] == name:
            return f"{seconds(now - began)}\N{HORIZONTAL ELLIPSIS}"
        took = sum(us for phase, us in spent.items() if phase.rpartition(": ")[2] == name)
        return seconds(took) if took else "\N{MIDDLE DOT}"

    def _foot(self, now: float) -> str:
        running = [
            f"{said(name)} {f'({key.slug})' if key is not None else ''}"
            for key, (name, _) in self._running.items()
        ]
        what = ", ".join(map(str.strip, running))
        left = self._left_s(now)
        eta = f", about {seconds(left)} left" if left is not None else ""
        return f"{what or 'starting'}; {seconds(now - self._began)} elapsed{eta}"

    def _left_s(self, now: float) -> float | None:
        """What the runs that are not done would take: the mean of those that are, of the same mode
        if there is one. None until one is, and when all have begun."""
        here = next(iter(self._running), None)
        if not self._passes or len(self._running) != 1 or here not in self._runs:
            return None
        at = self._runs.index(here)
        spent = [(key, sum(self._took.get(key, {}).values())) for key in self._runs]
        done = spent[:at]
        if not done or any(key in self._took for key in self._runs[at + 1 :]):
            return None  # a further round over all runs, or what is done once all are timed

        def expected(key: m.RunKey) -> float:
            alike = [took for other, took in done if other.mode == key.mode] or [
                took for _, took in done
            ]
            return sum(alike) / len(alike)

        begun = spent[at][1] + now - self._running[here][1]
        return max(1.0, expected(self._runs[at]) - begun) + sum(
            expected(key) for key in self._runs[at + 1 :]
        )


def seconds(spent: float) -> str:
    """ "3.2 s", "41 s", "2 min 05 s"."""
    if spent < 59.5:
        return f"{spent:.1f} s" if spent < 9.95 else f"{spent:.0f} s"
    minutes, rest = divmod(round(spent), 60)
    return f"{minutes} min {rest:02d} s"


def said(name: str) -> str:
    """A phase for a person; "round 2: timing" keeps its round."""
    round_, colon, phase = name.rpartition(": ")
    return f"{round_}{colon}{_WORDS.get(phase, phase)}"


def _line(spent: float, name: str, key: m.RunKey | None) -> str:
    return (
        f"kgprof: {spent:7.1f} s  {f'{key.slug}  {said(name)}' if key is not None else said(name)}"
    )
