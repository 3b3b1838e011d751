"""What the user sees on stderr while children work: one live table on a terminal, else a plain line per phase."""

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
_WORDS = {"plan": "loading the workload", "prepare": "starting the process", "agreement": "comparing results"}
_ROWS = 12  # of the table: those around the run that is measured
_RESULT_FROM = 110  # columns of a terminal that has room for what each run gave


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
    """Told of each phase, from any thread, of what a run gave once it is measured (``short``: for a column), and in
    advance which runs in which passes are to come."""

    def expect(self, runs: Sequence[m.RunKey], passes: Sequence[str]) -> None: ...
    def phase(self, name: str, key: m.RunKey | None) -> None: ...
    def result(self, text: str, key: m.RunKey, *, short: str = "") -> None: ...


def choose(
    *, quiet: bool, live: bool = True, verbose: bool = False, stream: TextIO | None = None
) -> AbstractContextManager[Progress]:
    """Silence, plain lines (a pipe, CI, a dumb terminal, ``verbose``), or a live table; entered to record."""
    stream = sys.stderr if stream is None else stream
    if quiet or stream is None:  # stderr is None where it was closed by who started us
        return Silent()
    return Live(stream) if live and not verbose and is_terminal(stream) else Plain(stream)


def is_terminal(stream: TextIO | None) -> bool:
    """Somebody looks at it, and it can do more than lines."""
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("CI")


class Silent(AbstractContextManager["Silent"]):
    def __exit__(self, *_: object) -> None:
        return None

    def expect(self, runs: Sequence[m.RunKey], passes: Sequence[str]) -> None:
        return None

    def phase(self, name: str, key: m.RunKey | None) -> None:
        return None

    def result(self, text: str, key: m.RunKey, *, short: str = "") -> None:
        return None


class Plain(Silent):
    """``kgprof:   12.3 s  fused.default  timing`` when a phase begins; the time is since the command began."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._began = time.monotonic()

    def phase(self, name: str, key: m.RunKey | None) -> None:
        tell(_line(time.monotonic() - self._began, name, key), self._stream)

    def result(self, text: str, key: m.RunKey, *, short: str = "") -> None:
        tell(f"kgprof: {key.slug}: {text}", self._stream)


class Live:
    """A table of runs by passes, with what each took, and below it the time that has passed and is left; gone at the
    end, when the result is shown in its place."""

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
        self._running: tuple[str, m.RunKey | None, float] | None = None
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

    def phase(self, name: str, key: m.RunKey | None) -> None:
        with self._lock:
            self._finish()
            if key is not None and key not in self._runs:
                self._runs.append(key)
            self._running = (name, key, time.monotonic())

    def result(self, text: str, key: m.RunKey, *, short: str = "") -> None:
        with self._lock:
            self._gave[key] = short or text

    def _finish(self) -> None:
        name, key, began = self._running or ("", None, 0.0)
        if key is not None:
            spent = self._took.setdefault(key, {})
            spent[name] = spent.get(name, 0.0) + time.monotonic() - began
        self._running = None

    # ---------------------------------------------------------------- what is drawn

    def _table(self) -> Group:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        with self._lock:
            now, at = time.monotonic(), self._running
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
                style = "bold" if at is not None and at[1] == key else ""
                table.add_row(key.slug, *cells, *gave, style=style)
            foot = Text(self._foot(now), overflow="ellipsis", no_wrap=True)
            return Group(table, foot) if self._runs else Group(foot)

    def _shown(self) -> list[m.RunKey]:
        """All runs, or as many around the one that is measured as there is room for."""
        here = self._running[1] if self._running is not None else None
        at = self._runs.index(here) if here in self._runs else 0
        room = max(3, min(_ROWS, self._console.height - 4))
        start = max(0, min(at - room // 2, len(self._runs) - room))
        return self._runs[start : start + room]

    def _cell(self, key: m.RunKey, name: str, now: float) -> str:
        spent, at = self._took.get(key, {}), self._running
        here = at is not None and at[1] == key
        if not self._passes:
            total = sum(spent.values()) + (now - at[2] if at is not None and here else 0.0)
            return f"{said(at[0])}, {seconds(total)}" if at is not None and here else f"done, {seconds(total)}"
        if at is not None and here and at[0].rpartition(": ")[2] == name:
            return f"{seconds(now - at[2])}\N{HORIZONTAL ELLIPSIS}"
        took = sum(us for phase, us in spent.items() if phase.rpartition(": ")[2] == name)
        return seconds(took) if took else "\N{MIDDLE DOT}"

    def _foot(self, now: float) -> str:
        name, key, _ = self._running or ("", None, now)
        what = f"{said(name)} {f'({key.slug})' if key is not None else ''}".strip()
        left = self._left_s(now)
        eta = f", about {seconds(left)} left" if left is not None else ""
        return f"{what or 'starting'}; {seconds(now - self._began)} elapsed{eta}"

    def _left_s(self, now: float) -> float | None:
        """What the runs that are not done would take: the mean of those that are, of the same mode if there is one.
        None until one is, and when all have begun."""
        if not self._passes or self._running is None or self._running[1] not in self._runs:
            return None
        at = self._runs.index(self._running[1])
        spent = [(key, sum(self._took.get(key, {}).values())) for key in self._runs]
        done, last = spent[:at], self._passes[-1]
        if not done or any(last in self._took.get(key, {}) for key, _ in spent[at + 1 :]):
            return None  # a further round over all runs

        def expected(key: m.RunKey) -> float:
            alike = [took for other, took in done if other.mode == key.mode] or [took for _, took in done]
            return sum(alike) / len(alike)

        begun = spent[at][1] + now - self._running[2]
        return max(1.0, expected(self._runs[at]) - begun) + sum(expected(key) for key in self._runs[at + 1 :])


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
    return f"kgprof: {spent:7.1f} s  {f'{key.slug}  {said(name)}' if key is not None else said(name)}"
