"""A command that is forked from a process with torch is what a new one would have been."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import commands

# Its plan is made in a child that kgprof forks; a second of the plan, and none of a run.
PROGRAM = """
import os, sys
print(os.getcwd(), sys.argv, __file__, os.environ["KGPROF_OUT"], os.getppid() > 1, file=sys.stderr)

class Both:
    strategies = {"one": print}

both = Both()
"""
ARGS = (
    *("profile", "w.py:both", "--strategy", "two", "--mode", "eager"),
    *("--device", "cpu", "-o", "out"),
)


def without_seconds(done: subprocess.CompletedProcess[str]) -> tuple[int, str, str]:
    busy = re.compile(r"kgprof: other processes used .*\n")
    return (done.returncode, done.stdout, re.sub(r" +\d+\.\d s", "", busy.sub("", done.stderr)))


def test_a_forked_command_says_and_ends_as_a_new_process_does(tmp_path: Path) -> None:
    (tmp_path / "w.py").write_text(PROGRAM, encoding="utf-8")
    given = {**commands.without_settings(), "KGPROF_OUT": "x"}

    forked = commands.run(*ARGS, cwd=tmp_path, environment=given)
    new = subprocess.run(
        [sys.executable, "-m", "kgprof", *ARGS],
        cwd=tmp_path,
        env={**given, "PYTHONPATH": str(commands.ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert new.returncode == 2
    assert "has no strategy 'two'" in new.stderr
    assert without_seconds(forked) == without_seconds(new)


def test_what_torch_would_read_makes_it_a_new_process() -> None:
    own = {"KGPROF_OUT": "x", "CI": "1", "PYTEST_CURRENT_TEST": "y"}
    kept = commands.without_settings()

    assert commands._of_torch({**kept, **own}) == commands._of_torch(kept)
    for name in ("TORCH_LOGS", "OMP_NUM_THREADS", "CXX", "PATH"):
        assert commands._of_torch({**kept, name: "other"}) != commands._of_torch(kept)


def test_what_inductor_sets_in_this_process_makes_it_no_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in commands.OF_LIBRARIES:
        monkeypatch.delenv(name, raising=False)
    before = commands.without_settings()

    for name in commands.OF_LIBRARIES:
        monkeypatch.setenv(name, "what torch sets")

    assert commands.without_settings() == before
