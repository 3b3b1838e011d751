"""However kgprof and its child are ended, at whatever moment: an exit code that says so, one report
or none, and nothing that goes on."""

from __future__ import annotations

import contextlib
import io
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kgprof import cli
from kgprof.reading import layout
from tests.attack.family import Family
from tests.cli.test_endings import EVERY, SIGNALS, left, started, wait_until

ENDS_S = 60.0
ORDINARY = 5  # of the harness, whose passes measure nothing
MOST_MOMENTS_S = 6.0
KILLED = signal.SIGKILL


@dataclass(frozen=True, kw_only=True)
class Case:
    """``phase``: empty for a moment of ``after_s``. ``to``: whom the signals are sent to."""

    numbers: Sequence[int]
    to: str
    phase: str = ""
    after_s: float = 0.0


def cases(seed: random.Random) -> Sequence[Case]:
    """53: in phases, at any moment, and to the child or the guard of the scratch folder."""
    made = []
    for number, phase in seed.sample(EVERY, 18):
        numbers = [number] * seed.randint(1, 3)
        made.append(
            Case(numbers=numbers, to=seed.choice(("process", "group", "both")), phase=phase)
        )
    for _ in range(17):
        numbers = seed.choices((*SIGNALS, KILLED), k=seed.randint(1, 4))
        to = seed.choice(("process", "group", "both"))
        made.append(Case(numbers=numbers, to=to, after_s=seed.uniform(0.1, MOST_MOMENTS_S)))
    stopped = (signal.SIGSTOP, signal.SIGTSTP)
    for number in (*SIGNALS, KILLED, signal.SIGSEGV, signal.SIGABRT, signal.SIGPIPE, *stopped):
        made.append(
            Case(numbers=[number, *stopped[:1]][: seed.randint(1, 2)], to="child", phase="pass")
        )
    for number in (KILLED, signal.SIGTERM, signal.SIGSTOP, signal.SIGINT):
        made.append(Case(numbers=[number, signal.SIGTERM], to="guard", phase="pass"))
    for number in (*SIGNALS, KILLED):  # while it stands still itself
        numbers = (signal.SIGSTOP, number, signal.SIGCONT)
        made.append(Case(numbers=numbers, to="process", phase="pass"))
    return made[:53]


@contextlib.contextmanager
def _heard() -> Iterator[None]:
    """A shell's background ignores some, and so would what is started there."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def attack(case: Case, folder: Path) -> None:
    with _heard():
        running = started(folder, case.phase)
    with running:
        try:
            if case.phase:
                wait_until((folder / "at").exists, running)
            else:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    running.wait(case.after_s)
            for number in case.numbers:
                _send(number, case.to, running.pid)
                time.sleep(0.2)
            if case.to == "child":  # who stands still ends by Ctrl-C alone
                with contextlib.suppress(subprocess.TimeoutExpired):
                    running.wait(4.0)
                _send(signal.SIGINT, "process", running.pid)
            out, err = running.communicate(timeout=ENDS_S)
        finally:
            running.kill()
            if signal.SIGSTOP in case.numbers and case.to == "guard":
                for guard in _marked(folder, lambda line: "scratch.py" in line):
                    os.kill(guard, signal.SIGCONT)
    _ended_well(running.returncode, out, err, case, folder)


def _ended_well(code: int, out: str, err: str, case: Case, folder: Path) -> None:
    killed = KILLED in case.numbers and case.to != "child" and case.to != "guard"
    wanted = {130, ORDINARY}
    if case.to == "child":
        wanted |= {4}
    if killed:
        wanted |= {-KILLED}
    # Python itself had not begun, or the harness was still importing, as kgprof's own beginning
    # does in silence
    begun = any(line.startswith("kgprof: ") for line in err.splitlines())
    imports = "tests/cli/waiting.py" in err and not begun
    if (imports or not err) and not (folder / "out").exists():
        wanted |= {-number for number in case.numbers}
    assert code in wanted, (code, err)
    if imports and not (folder / "out").exists():
        return
    assert "kgprof/cli/" not in err
    assert "internal error" not in err
    wait_until(lambda: not left(folder))
    page = folder / "out" / "report.html"
    if code == 130 and case.phase not in ("", "before", "planning") and len(case.numbers) == 1:
        assert (out, page.is_file()) == ("out/report.html\n", True), err
    if not (folder / "out").exists():
        return
    again = io.StringIO()
    stdout = io.TextIOWrapper(io.BytesIO(), "utf-8")
    place = folder / "out"
    if (place / layout.UNFINISHED).exists() and not (place / layout.FOLDER).exists():
        place = place / layout.UNFINISHED
    with contextlib.redirect_stderr(again), contextlib.redirect_stdout(stdout):
        reported = cli.run(["report", str(place)])
    assert reported in (0, 2), again.getvalue()
    assert again.getvalue().count("kgprof: error: ") == (reported == 2), again.getvalue()


def _send(number: int, to: str, pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        if to in ("process", "both"):
            os.kill(pid, number)
        if to in ("group", "both"):
            os.killpg(pid, number)
        if to == "child":
            for child in _children(pid, lambda line: "child_" in line or "waiting" in line):
                os.kill(child, number)
        if to == "guard":
            for guard in _children(pid, lambda line: "scratch.py" in line):
                os.kill(guard, number if number != signal.SIGTERM else signal.SIGKILL)
            if number == signal.SIGTERM:
                os.kill(pid, number)


def _children(parent: int, chosen: Callable[[str], bool]) -> Sequence[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text("utf-8", "replace").rpartition(")")[2].split()
            line = (stat.parent / "cmdline").read_text("utf-8", "replace")
            if int(fields[1]) == parent and chosen(line):
                found.append(int(stat.parent.name))
    return found


def _marked(folder: Path, chosen: Callable[[str], bool]) -> Sequence[int]:
    mark = os.fsencode(f"TMPDIR={folder / 'tmp'}\0")
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (place / "environ").read_bytes() and chosen((place / "cmdline").read_text()):
                found.append(int(place.name))
    return found


FAMILY = Family("signals", cases, attack)
