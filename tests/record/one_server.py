"""One process that has imported torch, from which the programs of many tests are forked.

kgprof starts such a process for each recording. A test that runs one program would pay for it once
more each time: 2.3 s of a processor.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from kgprof.record import fork_server


class _Kept:
    """A server, with the folder and the variables of the test that began it."""

    def __init__(self) -> None:
        self.server = fork_server.ForkServer()
        self.begun_in = _surroundings()
        atexit.register(self.server.end)


_kept: list[_Kept] = []  # one at most


def _surroundings() -> tuple[str, dict[str, str]]:
    return os.getcwd(), dict(os.environ)


@contextmanager
def imports_shared() -> Iterator[None]:
    """Does what ``fork_server.imports_shared`` does, and leaves the server for the next test.

    A test in another folder or with other variables ends it and begins another one.
    """
    with mock.patch.dict(os.environ):
        os.environ.pop("PYTEST_CURRENT_TEST", None)
        if not _kept or _kept[0].server.broken or _kept[0].begun_in != _surroundings():
            for before in _kept:
                before.server.end()
            _kept[:] = [_Kept()]
        with mock.patch.object(fork_server, "_servers", [_kept[0].server]):
            yield
