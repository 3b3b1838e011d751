"""What a child tells about its failure is what the workload's author wants to read."""

from __future__ import annotations

import functools
import operator
import sys

import pytest

from kgprof.errors import UsageError, WorkloadError
from kgprof.record.ground.job import Failed, describe_failure
from kgprof.record.ground.run import seed_everything
from kgprof.record.passes.timing import StepClock, timed_steps
from kgprof.workloads import loading
from tests.record.sessions import Stepping


def raised_by(work: object) -> BaseException:
    try:
        timed_steps(Stepping(work).step, StepClock(), 1)  # type: ignore[arg-type]
    except BaseException as error:  # noqa: BLE001  SystemExit among them
        return error
    raise AssertionError("it did not raise")


def fails() -> None:
    raise ValueError("two\nlines")


def test_the_traceback_begins_after_kgprofs_own_frames() -> None:
    # given: an exception whose trace goes from a caller of kgprof's through kgprof to the workload
    error = raised_by(fails)
    assert error.__traceback__ is not None
    inside_kgprof = error.__traceback__.tb_next  # the first frame is this file's

    failed = describe_failure(error.with_traceback(inside_kgprof))

    assert failed.message == "ValueError: two\nlines"
    assert failed.exit_code is None
    assert "timing.py" not in failed.traceback
    assert "in step" in failed.traceback
    assert "in fails" in failed.traceback


def test_kgprofs_own_errors_keep_their_exit_code_and_hint() -> None:
    failed = describe_failure(UsageError("no strategy 'x'", hint="it has: y"))

    assert (failed.message, failed.hint, failed.exit_code) == ("no strategy 'x'", "it has: y", 2)


def test_an_exception_of_kgprofs_own_lines_is_not_the_workloads() -> None:
    with pytest.raises(AttributeError) as caught:
        loading.find(None)  # type: ignore[arg-type]
    error = caught.value
    assert error.__traceback__ is not None

    through_here = describe_failure(error)
    alone = describe_failure(error.with_traceback(error.__traceback__.tb_next))

    assert through_here.message.startswith("AttributeError")
    assert alone.message.startswith("in kgprof's own code, not in the workload's: AttributeError")


def test_what_a_step_in_c_raises_is_the_workloads() -> None:
    error = raised_by(functools.partial(operator.truediv, 1, 0))
    assert error.__traceback__ is not None

    failed = describe_failure(error.with_traceback(error.__traceback__.tb_next))

    assert failed.message == "ZeroDivisionError: division by zero"


def test_a_workload_error_shows_its_causes_traceback() -> None:
    error = WorkloadError("it could not be imported")
    error.__cause__ = raised_by(fails)

    failed = describe_failure(error)

    assert failed.message == "it could not be imported"
    assert failed.exit_code == 4
    assert failed.traceback.endswith("ValueError: two\nlines\n")


def test_sys_exit_is_a_failure_too() -> None:
    assert describe_failure(raised_by(lambda: sys.exit(3))).message == "SystemExit: 3"


def test_a_message_in_colours_is_said_without() -> None:
    assert (
        describe_failure(ValueError("two \x1b[1;31moptions\x1b[0m")).message
        == "ValueError: two options"
    )


def test_notes_of_an_exception_stand_in_the_traceback_alone() -> None:
    error = ValueError("no weights")
    error.add_note("a hint\nin two lines")

    failed = describe_failure(error)

    assert failed.message == "ValueError: no weights"
    assert failed.traceback == "ValueError: no weights\na hint\nin two lines\n"


def test_an_exception_without_a_trace_is_described() -> None:
    assert describe_failure(ValueError("x")) == Failed(
        message="ValueError: x", traceback="ValueError: x\n"
    )


def test_every_run_starts_from_the_same_random_numbers() -> None:
    import random

    import numpy as np
    import torch

    drawn = []
    for _ in range(2):
        seed_everything(7)
        drawn.append((random.random(), float(np.random.rand()), float(torch.rand(()))))

    assert drawn[0] == drawn[1]
