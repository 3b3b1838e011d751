"""Two processes that time in turn: whose block it is, what becomes of it when one has fewer blocks
or dies."""

from __future__ import annotations

import os
import sys
import textwrap
import time
from pathlib import Path

import msgspec
import pytest

from kgprof.model import Options, Outcome, RunKey
from kgprof.record.ground.job import Job, Task
from kgprof.record.ground.turns import FIRST, YOURS, Turns, core
from kgprof.record.processes import children
from kgprof.record.processes.children import Caches, Ended, Start
from tests.record.processes.test_children import PROLOGUE, Text

PROGRAM = """
import signal
job = json.load(open(sys.argv[2]))
sys.path.insert(0, sys.argv[1])
from kgprof.record.ground.turns import Turns
name, blocks, dies = job["function"].split()
turns = Turns(tuple(job["turns"]))
def note(word):
    with open(job["answer"], "a") as file:
        file.write(f"{word}\\n")
note(f"{name} prepared")
if dies == "daemon" and not os.fork():
    os.setsid()
    time.sleep(60)
send(event="phase", name="timing")
for block in range(int(blocks)):
    turns.take()
    note(f"{name}{block} begins")
    time.sleep(0.05)
    if dies == str(block):
        os._exit(3)
    if dies == "stops":
        os.kill(os.getpid(), signal.SIGSTOP)
    note(f"{name}{block} ends")
    turns.give()
turns.leave()
note(f"{name} leaves")
send(event="done")
"""


def beside(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    first: str,
    second: str,
    *,
    timeout_s: float = 30.0,
) -> tuple[tuple[Ended, Ended], str]:
    """``first`` and ``second``: name, blocks, and the block at which it dies. What they wrote, a
    line each."""
    monkeypatch.setattr(children, "BOOTSTRAP", Text(PROLOGUE + textwrap.dedent(PROGRAM)))
    said = folder / "said"

    def start(words: str) -> Start:
        own = folder / words.split()[0]
        own.mkdir()
        job = Job(
            task=Task.ROUND,
            options=Options(timeout_s=timeout_s),
            parent_pid=os.getpid(),
            key=RunKey(strategy="s", mode="eager"),
            function=words,
            answer=str(said),
        )
        caches = Caches(folder=own / "caches")
        return Start(
            job=job, scratch=own, log=own / "log", caches=caches, on_phase=lambda name: None
        )

    ended = children.run_in_turn(start(first), start(second))
    return ended, said.read_text()


def blocks(said: str) -> list[str]:
    return [line.removesuffix(" begins") for line in said.splitlines() if line.endswith("begins")]


def test_blocks_are_taken_in_turn_and_never_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, said = beside(tmp_path, monkeypatch, "a 3 -", "b 3 -")

    assert [each.exit.outcome for each in ended] == [Outcome.OK, Outcome.OK]
    expected = ["a prepared", "b prepared"]
    for block in range(3):
        for name in ("b", "a"):  # the one that was started last goes first
            expected += [f"{name}{block} begins", f"{name}{block} ends"]
    lines = said.splitlines()
    assert lines[:-2] == expected
    assert sorted(lines[-2:]) == ["a leaves", "b leaves"]


@pytest.mark.parametrize(
    ("first", "second"), [("a 4 -", "b 2 -"), ("a 2 -", "b 4 -"), ("a 0 -", "b 2 -")]
)
def test_who_has_fewer_blocks_waits_for_the_other_one_to_end(
    first: str, second: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, said = beside(tmp_path, monkeypatch, first, second)

    assert [each.exit.outcome for each in ended] == [Outcome.OK, Outcome.OK]
    total = int(first.split()[1]) + int(second.split()[1])
    assert len(blocks(said)) == total
    # nobody ended beside a block
    assert all(line.endswith("leaves") for line in said.splitlines()[-2:])


@pytest.mark.parametrize(
    ("first", "second"), [("a 3 1", "b 3 -"), ("a 3 -", "b 3 1"), ("a 3 -", "b 3 0")]
)
def test_one_that_dies_leaves_the_other_one_alone(
    first: str, second: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = time.monotonic()

    ended, said = beside(tmp_path, monkeypatch, first, second)

    assert time.monotonic() - began < 20
    alive = "b" if first.endswith("1") else "a"
    assert [each.exit.outcome == Outcome.OK for each in ended] == [alive == "a", alive == "b"]
    assert [each for each in blocks(said) if each[0] == alive] == [
        f"{alive}{number}" for number in range(3)
    ]


@pytest.mark.parametrize(("first", "second"), [("a 3 stops", "b 3 -"), ("a 3 -", "b 3 stops")])
def test_one_that_is_stopped_costs_the_time_limit_of_both(
    first: str, second: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = time.monotonic()

    ended, _ = beside(tmp_path, monkeypatch, first, second, timeout_s=1.0)

    assert time.monotonic() - began < 20
    assert ended[first.endswith("-")].exit.outcome is Outcome.TIMED_OUT


def test_a_daemon_that_holds_the_pipes_keeps_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "DRAIN_S", 1.0)
    began = time.monotonic()

    ended, said = beside(tmp_path, monkeypatch, "a 3 -", "b 2 daemon")

    assert time.monotonic() - began < 20
    assert [each.exit.outcome for each in ended] == [Outcome.OK, Outcome.OK]
    assert len(blocks(said)) == 5


def test_a_first_one_that_dies_before_it_times_leaves_the_second_one_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, said = beside(tmp_path, monkeypatch, "a x -", "b 2 -")  # int("x")

    assert [each.exit.outcome == Outcome.OK for each in ended] == [False, True]
    assert blocks(said) == ["b0", "b1"]


@pytest.mark.skipif(
    sys.platform != "linux", reason="other systems do not say which core a thread is on"
)
def test_who_has_its_turn_goes_on_on_the_core_of_the_other_one_and_may_use_all_of_them_afterwards() -> (  # noqa: E501
    None
):
    allowed = os.sched_getaffinity(0)
    (reads, said) = os.pipe()
    turns = Turns((reads, said))  # it answers itself
    for wanted in allowed:
        os.write(said, YOURS + wanted.to_bytes(2))
        turns.take()
        assert core() == wanted
        assert os.sched_getaffinity(0) == allowed
    os.write(said, FIRST)
    turns.take()
    assert os.sched_getaffinity(0) == allowed
    for end in (reads, said):
        os.close(end)


def test_an_older_kgprof_knows_nothing_of_turns() -> None:
    """Its Job ignores the field; in_turn.py starts no pair at the same time with one that has no
    turns.py."""
    job = Job(task=Task.ROUND, options=Options(), parent_pid=1, turns=(3, 4))

    class OldJob(msgspec.Struct):
        task: Task

    assert msgspec.json.decode(msgspec.json.encode(job), type=OldJob).task is Task.ROUND
