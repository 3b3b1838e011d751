"""What the user sees on stderr while children work: one live table on a terminal, else a plain line
per phase."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from statistics import fmean
from typing import TYPE_CHECKING, Any, TextIO

import click

from kgprof import model as m
from kgprof.wording import visible

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


LINES = "\n\t"
STYLED = f"{LINES}\x1b"  # of a text whose escapes are all ours


def tell(text: str, stream: TextIO | None = None, *, kept: str = LINES) -> None:
    """A line on stderr, without anything that steers a terminal. Whoever read it may have gone
    (``2>&1 | head``): the work goes on, and its exit code stands."""
    stream = stream or sys.stderr
    if stream is None:  # closed by who started us
        return
    try:
        click.echo(visible(text, keep=kept), file=stream)
    except OSError:
        discard(stream)


def discard(stream: TextIO) -> None:
    """Into nothing with what is still buffered: it would raise once more when Python closes the
    stream."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class Progress(AbstractContextManager["Progress"]):
    """Told of each phase, from any thread, of what a run gave once it is measured (``short``: for a
    column), and in advance which runs in which passes are to come. ``beside``: other runs go on; an
    empty name: this one has ended. This one says nothing of it."""

    def __exit__(self, *_: object) -> None:
        return None

    def expect(self, runs: Sequence[m.RunKey], passes: Sequence[str]) -> None:
        return None

    def phase(self, name: str, key: m.RunKey | None, *, beside: bool = False) -> None:
        return None

    def result(self, text: str, key: m.RunKey, *, short: str = "") -> None:
        return None


def choose(
    *, quiet: bool, live: bool = True, verbose: bool = False, stream: TextIO | None = None
) -> Progress:
    """Silence, plain lines (a pipe, CI, a dumb terminal, ``verbose``), or a live table; entered to
    record."""
    stream = stream or sys.stderr
    if quiet or stream is None:  # stderr is None where it was closed by who started us
        return Progress()
    if live and not verbose and is_terminal(stream):
        return Live(stream)
    return Plain(stream)


def is_terminal(stream: TextIO | None) -> bool:
    """Somebody looks at it, and it can do more than lines."""
    return (
        stream is not None
        and stream.isatty()
        and os.environ.get("TERM") != "dumb"
        and not os.environ.get("CI")
    )


class Plain(Progress):
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


class Live(Progress):
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
            ended = [*self._running]
            if beside:
                ended = [key]
            for one in ended:
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
            foot = Text(visible(self._foot(now)), overflow="ellipsis", no_wrap=True)
            if not self._runs:
                return Group(foot)
            wide = self._console.width >= _RESULT_FROM
            table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
            table.add_column("run", no_wrap=True, overflow="ellipsis", ratio=1)
            for name in self._passes:
                table.add_column(name, justify="right", no_wrap=True)
            if not self._passes:
                table.add_column("phase", no_wrap=True)
            elif wide:
                table.add_column("result", no_wrap=True, overflow="ellipsis")
            for key in self._shown():
                cells = [self._cell(key, name, now) for name in self._passes]
                if not self._passes:
                    cells.append(self._phase(key, now))
                elif wide:
                    cells.append(self._gave.get(key, ""))
                style = "bold" if key in self._running else ""
                table.add_row(*map(visible, (key.slug, *cells)), style=style)
            return Group(table, foot)

    def _shown(self) -> list[m.RunKey]:
        """All runs, or as many around the one that is measured as there is room for."""
        at = 0
        if (here := next(reversed(self._running), None)) in self._runs:
            at = self._runs.index(here)
        room = max(3, min(_ROWS, self._console.height - 4))
        start = max(0, min(at - room // 2, len(self._runs) - room))
        return self._runs[start : start + room]

    def _phase(self, key: m.RunKey, now: float) -> str:
        """The cell of a run whose passes are not known."""
        name, began = self._running.get(key, ("", now))
        total_s = sum(self._took.get(key, {}).values()) + now - began
        return f"{said(name) or 'done'}, {seconds(total_s)}"

    def _cell(self, key: m.RunKey, name: str, now: float) -> str:
        spent = self._took.get(key, {})
        running, began = self._running.get(key, ("", now))
        if running.rpartition(": ")[2] == name:
            return f"{seconds(now - began)}\N{HORIZONTAL ELLIPSIS}"
        took = sum(us for phase, us in spent.items() if phase.rpartition(": ")[2] == name)
        if not took:
            return "\N{MIDDLE DOT}"
        return seconds(took)

    def _foot(self, now: float) -> str:
        running = []
        for key, (name, _) in self._running.items():
            where = f" ({key.slug})" if key is not None else ""
            running.append(f"{said(name)}{where}")
        text = f"{', '.join(running) or 'starting'}; {seconds(now - self._began)} elapsed"
        left = self._left_s(now)
        if left is not None:
            text += f", about {seconds(left)} left"
        return text

    def _left_s(self, now: float) -> float | None:
        """What the runs that are not done would take: the mean of those that are, of the same mode
        if there is one. None until one is, and when all have begun."""
        here = next(iter(self._running), None)
        if not self._passes or len(self._running) != 1 or here not in self._runs:
            return None
        at = self._runs.index(here)
        to_come = self._runs[at + 1 :]
        spent = {key: sum(self._took.get(key, {}).values()) for key in self._runs[: at + 1]}
        begun = spent.pop(here) + now - self._running[here][1]
        if not spent or any(key in self._took for key in to_come):
            return None  # a further round over all runs, or what is done once all are timed

        def expected(key: m.RunKey) -> float:
            alike = [took for other, took in spent.items() if other.mode == key.mode]
            return fmean(alike or spent.values())

        return max(1.0, expected(here) - begun) + sum(map(expected, to_come))


def seconds(spent: float) -> str:
    """ "3.2 s", "41 s", "2 min 05 s"."""
    if spent < 9.95:
        return f"{spent:.1f} s"
    if spent < 59.5:
        return f"{spent:.0f} s"
    minutes, rest = divmod(round(spent), 60)
    return f"{minutes} min {rest:02d} s"


def said(name: str) -> str:
    """A phase for a person; "round 2: timing" keeps its round."""
    round_, colon, phase = name.rpartition(": ")
    return f"{round_}{colon}{_WORDS.get(phase, phase)}"


def _line(spent: float, name: str, key: m.RunKey | None) -> str:
    where = f"{key.slug}  " if key is not None else ""
    return f"kgprof: {spent:7.1f} s  {where}{said(name)}"
