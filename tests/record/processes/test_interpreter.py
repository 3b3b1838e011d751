"""An interpreter is looked at before anything is recorded: one error says what it lacks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kgprof.errors import EXIT_USAGE, UsageError
from kgprof.record.processes import interpreter


@pytest.mark.parametrize(
    ("answers", "said", "hint"),
    [
        ("lacks torch\\t-m pip install torch", "python lacks torch", "python -m pip install torch"),
        ("has torch 2.10.1; kgprof needs 2.11 or later", "python has torch 2.10.1; kgprof", ""),
        ("", "cannot be used: it said nothing", "import torch"),
    ],
)
def test_what_an_interpreter_lacks_is_said(
    answers: str, said: str, hint: str, tmp_path: Path
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho\necho '{answers}'\n")
    python.chmod(0o755)

    with pytest.raises(UsageError) as raised:
        interpreter.checked(str(python))

    assert said in raised.value.message
    assert hint in raised.value.hint
    assert raised.value.exit_code == EXIT_USAGE


def test_what_is_no_program_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such program"):
        interpreter.checked(str(tmp_path))


def test_this_interpreter_can_record() -> None:
    assert interpreter.checked(sys.executable) == sys.executable
