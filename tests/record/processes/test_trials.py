"""A trial's last answer is kept whatever becomes of its child."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from kgprof import model as m
from kgprof.record.processes import trials
from kgprof.record.processes.children import Caches

PROGRAMS = """
import os, time
from kgprof import model as m
def echo(question, options, write):
    print("asked", question)
    write(m.Exit(outcome=m.Outcome.OK, message=question.decode()))
    write(m.Exit(outcome=m.Outcome.OK, message=question.decode(), elapsed_s=options.timeout_s))
def hang_in_a_loop_of_its_own(question, options, write):
    write(m.Exit(outcome=m.Outcome.OK, message="before"))
    time.sleep(60)
def fail(question, options, write):
    raise ValueError("no such thing")
def die(question, options, write):
    write(m.Exit(outcome=m.Outcome.OK, message="before"))
    os.abort()
"""
QUESTION = m.Exit(outcome=m.Outcome.OK, message="how?")


@pytest.fixture
def asked(tmp_path: Path) -> Callable[..., trials.Trial]:
    """Asks one of PROGRAMS in a child."""
    (tmp_path / "programs.py").write_text(textwrap.dedent(PROGRAMS))

    def ask(name: str, timeout_s: float = 60.0) -> trials.Trial:
        caches = Caches(folder=tmp_path / "caches", extra={"PYTHONPATH": str(tmp_path)})
        function = f"programs:{name}"
        options = m.Options(timeout_s=timeout_s)
        return trials.run(function, QUESTION, options=options, scratch=tmp_path, caches=caches)

    return ask


def test_the_last_answer_stands_and_what_was_printed_is_kept(
    asked: Callable[..., trials.Trial],
) -> None:
    trial = asked("echo", timeout_s=77.0)

    assert trial.exit.outcome is m.Outcome.OK
    assert trial.answer is not None
    answer = m.decode_json(trial.answer, m.Exit)
    assert (m.decode_json(answer.message.encode(), m.Exit), answer.elapsed_s) == (QUESTION, 77.0)
    assert "asked" in trial.log
    assert not trial.interrupted


def test_one_that_hangs_is_ended_with_its_stack_and_its_answer_is_kept(
    asked: Callable[..., trials.Trial],
) -> None:
    trial = asked("hang_in_a_loop_of_its_own", timeout_s=3.0)

    assert trial.exit.outcome is m.Outcome.TIMED_OUT
    assert trial.answer is not None
    assert m.decode_json(trial.answer, m.Exit).message == "before"
    assert "hang_in_a_loop_of_its_own" in trial.log


def test_one_that_raises_has_its_error_and_no_answer(asked: Callable[..., trials.Trial]) -> None:
    trial = asked("fail")

    assert (trial.exit.outcome, trial.exit.message) == (
        m.Outcome.RAISED,
        "ValueError: no such thing",
    )
    assert trial.answer is None


def test_one_that_dies_costs_itself(asked: Callable[..., trials.Trial]) -> None:
    trial = asked("die")

    assert (trial.exit.outcome, trial.exit.message) == (m.Outcome.KILLED, "SIGABRT")
    assert trial.answer is not None
