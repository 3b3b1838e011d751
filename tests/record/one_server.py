"""One process that has imported torch, from which the programs of many tests are forked.

kgprof starts such a process for each recording. A test that runs one program would pay for it once
more each time: 2.5 s of a processor.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from kgprof.record import fork_server


class _Kept:
    """The server, with the variables and the folder of the test that began it."""

    def __init__(self) -> None:
        self.server = fork_server.ForkServer()
        self.begun_in = _surroundings()
        atexit.register(self.server.end)


_kept: list[_Kept] = []


def _surroundings() -> tuple[str, dict[str, str]]:
    return os.getcwd(), dict(os.environ)


@contextmanager
def imports_shared() -> Iterator[None]:
    """Does what ``fork_server.imports_shared`` does, and leaves the server for the next test.

    A test that has set a variable or has gone to another folder gets a server of its own.
    """
    with mock.patch.dict(os.environ):
        os.environ.pop("PYTEST_CURRENT_TEST", None)
        if not _kept or _kept[-1].server.broken:
            _kept.append(_Kept())
        last = _kept[-1]
        if last.begun_in != _surroundings():
            with fork_server.imports_shared():
                yield
        else:
            with mock.patch.object(fork_server, "_servers", [last.server]):
                yield
