"""A script reads the user's standard input, and a later run of it reads the same again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kgprof.record.listeners import standard_input

PROGRAM = """
import sys
from kgprof.record.listeners.standard_input import copy_to
copy_to(sys.argv[1])
print(repr(input()), repr(sys.stdin.readline()), sys.stdin.name, sys.stdin.mode)
print(repr(sys.stdin.read()))
"""


def read_by_a_program(copy: Path, given: bytes | int) -> str:
    how = {"input": given} if isinstance(given, bytes) else {"stdin": given}
    made = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(copy)],
        stdout=subprocess.PIPE,
        check=True,
        **how,  # type: ignore[call-overload]
    )
    return str(made.stdout.decode())


def test_what_the_first_run_reads_is_what_the_second_one_gets(tmp_path: Path) -> None:
    copy = tmp_path / "stdin"

    first = read_by_a_program(copy, b"one\ntwo\nand \xc3\xa4\n")
    with standard_input.opened(str(copy), is_users=False) as descriptor:
        second = read_by_a_program(copy, descriptor)

    assert first == "'one' 'two\\n' <stdin> r\n'and ä\\n'\n"
    assert second.splitlines()[1:] == first.splitlines()[1:]
    assert copy.read_bytes() == b"one\ntwo\nand \xc3\xa4\n"


def test_a_first_run_gets_the_users_own_and_a_later_one_without_a_copy_gets_none(
    tmp_path: Path,
) -> None:
    missing = str(tmp_path / "none")

    with standard_input.opened(missing, is_users=True) as descriptor:
        assert os.path.sameopenfile(descriptor, 0)
    with standard_input.opened(missing, is_users=False) as descriptor:
        assert os.read(descriptor, 1) == b""


def test_more_than_is_kept_leaves_no_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standard_input, "LONGEST", 3)
    copy, (reading, writing) = tmp_path / "stdin", os.pipe()
    os.write(writing, b"four")
    os.close(writing)
    before = os.dup(0)
    os.dup2(reading, 0)
    try:
        source = standard_input._Copied(copy)
        assert source.read(3) == b"fou"
        assert copy.read_bytes() == b"fou"
        assert source.read(3) == b"r"
    finally:
        os.dup2(before, 0)
        os.close(before)
        os.close(reading)
    assert not copy.exists()
