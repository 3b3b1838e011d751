"""Where a program raised, from the exception that ended it."""

import traceback
from pathlib import Path

import pytest

from kgprof.errors import UsageError, WorkloadError
from kgprof.model import Failure
from kgprof.record.ground.job import failure
from kgprof.record.listeners.call_index import CallIndex

PROGRAM = """\
import json


def step():
    return json.loads(text())


def text():
    return "{"
"""


def ends(file: Path, source: str, call: str) -> BaseException:
    file.write_text(source)
    names: dict[str, object] = {}
    try:
        exec(compile(f"{source}\n{call}", str(file), "exec"), names)
    except BaseException as error:  # noqa: BLE001  a program may raise anything
        return error
    raise AssertionError("it ended well")


def test_a_library_that_raises_is_the_line_of_the_program_that_called_it(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    error = ends(file, PROGRAM, "step()")

    found = failure(error, lambda name: name == str(file), 2, 20)

    assert isinstance(found, Failure)
    assert (found.location.line, found.location.function) == (5, "step")
    assert found.location.text == "return json.loads(text())"
    assert found.error.startswith("json.decoder.JSONDecodeError: Expecting property name")
    assert (found.step, found.steps) == (2, 20)


def test_what_no_line_of_the_program_raised_has_no_place(tmp_path: Path) -> None:
    error = ends(tmp_path / "program.py", PROGRAM, "step()")

    assert failure(error, lambda name: False) is None
    assert failure(UsageError("no such name"), lambda name: True) is None


def test_of_a_workload_that_could_not_be_loaded_it_is_the_cause_that_counts(
    tmp_path: Path,
) -> None:
    file = tmp_path / "program.py"
    cause = ends(file, "import no_such_module\n", "")
    error = WorkloadError("program.py raised ModuleNotFoundError while it was imported")
    error.__cause__ = cause

    found = failure(error, lambda name: name == str(file))

    assert found is not None
    assert (found.error, found.location.line) == (traceback.format_exception_only(cause)[0][:-1], 1)


def test_a_syntax_error_of_another_file_is_in_that_file(tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    source = f"compile('def f(:', {str(other)!r}, 'exec')\n"
    error = ends(tmp_path / "program.py", source, "")

    found = failure(error, lambda name: name.startswith(str(tmp_path)))

    assert found is not None
    assert (found.location.file, found.location.line) == (str(other), 1)


def test_the_call_that_raised_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CallIndex, "raised_in", None)
    calls = CallIndex()
    results = iter((1, 2))

    step = calls.counted(lambda: next(results))
    step()
    step()
    assert CallIndex.raised_in is None
    with pytest.raises(StopIteration):
        step()

    assert CallIndex.raised_in == 2
