"""Children beside each other: two at a time, of which one stands still while the other one
times."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kgprof.model import Options, Outcome, RunKey
from kgprof.record.ground.alone import alone
from kgprof.record.ground.job import Job, Task
from kgprof.record.processes import children
from kgprof.record.processes.children import Caches, Ended, Start
from tests.record.processes.test_children import PROLOGUE, Text, is_gone

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="children run beside each other on Linux only"
)

# Each notes when it begins and ends, and while it is not alone a tick every few milliseconds; so
# does what it starts.
PROGRAM = """
job = json.load(open(sys.argv[2]))
sys.path.insert(0, sys.argv[1])
from kgprof.record.ground.alone import alone
name, kind = job["function"].split()
def note(word):
    with open(job["answer"], "a") as file:
        file.write(f"{name} {word}\\n")
def ticks(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        note("ticks")
        time.sleep(0.01)
note(f"begins {os.getpid()}")
if kind == "times":
    time.sleep(0.3)
    with alone(job["beside"]):
        time.sleep(0.1)  # the other one has stopped by now
        note("times")
        time.sleep(0.5)
        note("timed")
if kind == "dies":
    time.sleep(0.3)
    with alone(job["beside"]):
        note("times")
        os._exit(3)
if kind == "waits":
    time.sleep(60)
started = os.fork() if kind == "starts" else 1
ticks(0.0 if kind == "ends" else 1.5)
if not started:
    os._exit(0)
note("ends")
send(event="done")
"""


class Beside:
    """``run`` gives how children ended, by "name kind"; ``said`` is what they noted, a line
    each."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(children, "BOOTSTRAP", Text(PROLOGUE + textwrap.dedent(PROGRAM)))
        self._folder = folder
        self.phases: list[tuple[str, str]] = []

    def run(self, *words: str, timeout_s: float = 30.0) -> list[Ended]:
        return children.run_beside([self._start(each, timeout_s) for each in words])

    def _start(self, words: str, timeout_s: float) -> Start:
        name = words.split()[0]
        job = Job(
            task=Task.ROUND,
            options=Options(timeout_s=timeout_s),
            parent_pid=os.getpid(),
            key=RunKey(strategy="s", mode="eager"),
            function=words,
            answer=str(self._folder / "said"),
        )
        return Start(
            job=job,
            scratch=self._folder,
            log=self._folder / f"{name}.log",
            caches=Caches(folder=self._folder / name),
            on_phase=lambda phase: self.phases.append((name, phase)),
        )

    @property
    def said(self) -> list[tuple[str, str]]:
        return [(line.split()[0], line.split()[1]) for line in self._lines()]

    @property
    def pids(self) -> list[int]:
        return [int(line.split()[2]) for line in self._lines() if line.split()[1] == "begins"]

    def _lines(self) -> list[str]:
        file = self._folder / "said"
        return file.read_text(encoding="ascii").splitlines() if file.exists() else []


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Beside:
    return Beside(tmp_path, monkeypatch)


@pytest.mark.parametrize("kind", ["ticks", "starts"])
def test_while_one_times_the_other_one_and_what_it_started_stand_still(
    beside: Beside, kind: str
) -> None:
    ended = beside.run("a times", f"b {kind}")

    said = beside.said
    before, after = said.index(("a", "times")), said.index(("a", "timed"))
    assert [one.exit.outcome for one in ended] == [Outcome.OK] * 2
    assert said[before + 1 : after] == []
    assert ("b", "ticks") in said[:before]  # it ran until then
    assert ("b", "ticks") in said[after:]  # and went on


def test_two_that_time_do_so_one_after_the_other(beside: Beside) -> None:
    ended = beside.run("a times", "b times")

    said = beside.said
    times = [each for each in said if each[1] in ("times", "timed")]
    assert [one.exit.outcome for one in ended] == [Outcome.OK] * 2
    assert [each[0] for each in times] in (["a", "a", "b", "b"], ["b", "b", "a", "a"])


def test_one_that_dies_while_it_times_leaves_the_other_one_running(beside: Beside) -> None:
    began = time.monotonic()

    ended = beside.run("a dies", "b ticks")

    assert time.monotonic() - began < 20
    assert [one.exit.outcome for one in ended] == [Outcome.RAISED, Outcome.OK]
    assert ("b", "ends") in beside.said


def test_two_run_at_a_time_and_the_next_one_begins_when_one_has_ended(beside: Beside) -> None:
    ended = beside.run("a ticks", "b ends", "c ends")

    said = beside.said
    assert [one.exit.outcome for one in ended] == [Outcome.OK] * 3
    assert said.index(("b", "ends")) < said.index(("c", "begins")) < said.index(("a", "ends"))
    # its end is told
    assert [phase for name, phase in beside.phases if name == "b"] == ["compile", ""]


def interrupt_when(ready: Callable[[], bool]) -> threading.Thread:
    def watch() -> None:
        while not ready():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def test_a_signal_ends_all_and_no_other_one_begins(beside: Beside) -> None:
    interrupt_when(lambda: len(beside.pids) == 2)

    ended = beside.run("a waits", "b waits", "c ends")

    assert [(one.exit.outcome, one.interrupted) for one in ended] == [
        (Outcome.INTERRUPTED, True)
    ] * 2
    assert all(is_gone(pid) for pid in beside.pids)
    assert len(beside.pids) == 2


def test_one_that_stands_still_can_be_ended(beside: Beside) -> None:
    watch = interrupt_when(lambda: ("a", "times") in beside.said)

    beside.run("a times", "b waits")

    watch.join()
    assert ("a", "timed") not in beside.said  # it was in the middle of it
    assert all(is_gone(pid) for pid in beside.pids)


def test_who_has_nobody_beside_it_is_alone() -> None:
    with alone(""):
        pass
