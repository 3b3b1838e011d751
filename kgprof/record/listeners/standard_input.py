"""The standard input of a script: the user's own in its first run, and in a later one what the
first one has read.

A pipe and a terminal can be read only once. kgprof does not read them ahead of the program, which
may leave what follows to somebody else; what the program reads through ``sys.stdin`` is copied to a
file while it reads.
"""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

LONGEST = 2**26  # bytes that are copied; a later run of a program that reads more finds no input


@contextmanager
def opened(copy: str, *, is_users: bool) -> Iterator[int]:
    """A descriptor for a child. ``copy``: the file of what a run before it has read; ``is_users``:
    without that file it gets the user's own input, and else none."""
    descriptor = -1
    if is_users and not Path(copy).is_file():
        with suppress(OSError):  # kgprof was started without one
            descriptor = os.dup(0)
    if descriptor < 0:
        descriptor = os.open(copy if copy and Path(copy).is_file() else os.devnull, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


class _Copied(io.FileIO):
    """What is read goes to ``copy`` too. A copy that cannot be written, or grows too long, is given
    up and deleted."""

    def __init__(self, copy: Path) -> None:
        super().__init__(0, "rb", closefd=False)
        self.name = "<stdin>"  # Python's own name of it
        self._copy: Path | None = copy
        self._length = 0

    def readinto(self, buffer: Any) -> int | None:
        length = super().readinto(buffer)
        self._add(memoryview(buffer).cast("B")[: length or 0])
        return length

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(-1 if size is None else size)
        self._add(memoryview(data or b""))
        return data

    def readall(self) -> bytes:
        data = super().readall()
        self._add(memoryview(data or b""))
        return data

    def _add(self, data: memoryview) -> None:
        if self._copy is None or not data:
            return
        self._length += len(data)
        try:
            if self._length > LONGEST:
                raise OSError("too long")
            with io.FileIO(self._copy, "ab") as file:
                file.write(data)
        except OSError:
            self._copy.unlink(missing_ok=True)
            self._copy = None


def copy_to(file: str) -> None:
    """From now on, in the child of a script; where ``file`` is there, it is the input itself."""
    if not file or Path(file).exists():
        return
    buffered = io.BufferedReader(_Copied(Path(file)))
    encoding = sys.stdin.encoding
    errors = sys.stdin.errors
    text = io.TextIOWrapper(buffered, encoding=encoding, errors=errors)
    text.mode = "r"  # type: ignore[misc]  # as Python sets it
    sys.stdin = sys.__stdin__ = text  # type: ignore[misc]
