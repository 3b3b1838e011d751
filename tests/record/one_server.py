"""One process that has imported torch, from which the programs of many tests are forked.

kgprof starts such a process for each recording. A test that runs one program would pay for it once
more each time: 2.3 s of a processor. And what a program does after its last line it has done before
Python takes torch's modules apart, for one more second: here a program that did not raise leaves
then, as kgprof's other children do, unless the test is about how programs end.
"""

from __future__ import annotations

import atexit
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast
from unittest import mock

from kgprof.record.processes import fork_server
from tests import unprofiled_guards

Surroundings = tuple[str, dict[str, str]]
IMPORTS = "".join(f"__import__({name!r}); " for name in unprofiled_guards.FIRST_COMPILE)
LEAVES = "; from kgprof.record.processes import child; child.leave()"


class _Leaves(fork_server.ForkServer):
    """Its children end by ``child.leave`` and not by Python's own last acts, guards are not
    measured, and what a first compile imports is there."""

    def channel(
        self, command: Sequence[str], environment: Mapping[str, str], compiles: bool
    ) -> socket.socket | None:
        *before, code, home = command
        code = code.replace("main(*", f"{IMPORTS}{unprofiled_guards.CODE}main(*") + LEAVES
        return _of_no_recording(super(), [*before, code, home], environment, compiles)


class _Ends(fork_server.ForkServer):
    """Its children end as Python ends them."""

    def channel(
        self, command: Sequence[str], environment: Mapping[str, str], compiles: bool
    ) -> socket.socket | None:
        return _of_no_recording(super(), command, environment, compiles)


def _of_no_recording(
    server: Any, command: Sequence[str], environment: Mapping[str, str], compiles: bool
) -> socket.socket | None:
    """A recording ends what has its folder in a variable, as it ends itself; those that name it
    each child is given later."""
    kept = {name: value for name, value in environment.items() if name not in fork_server.LATE}
    return cast("socket.socket | None", server.channel(command, kept, compiles))


class _Kept:
    """A server, with the folder and the variables of the test that began it."""

    def __init__(self, surroundings: Surroundings, ends_as_python: bool) -> None:
        self.server = _Ends() if ends_as_python else _Leaves()
        self.begun_for = (surroundings, ends_as_python)
        atexit.register(self.server.end)


# The last few, each under whether it runs functions: those begin otherwise. A test in a folder of
# its own does not end the one that all others share.
MOST = 3
_kept: list[tuple[bool, _Kept]] = []


def _surroundings() -> Surroundings:
    read = {name: value for name, value in os.environ.items() if name not in fork_server.LATE}
    return os.getcwd(), read


def _with(runs_functions: bool, surroundings: Surroundings, ends_as_python: bool) -> _Kept:
    wanted = (surroundings, ends_as_python)
    for which, kept in _kept:
        if which == runs_functions and kept.begun_for == wanted and not kept.server.broken:
            _kept.remove((which, kept))
            break
    else:
        kept = _Kept(*wanted)
    _kept.append((runs_functions, kept))
    while len(_kept) > MOST:
        _kept.pop(0)[1].server.end()
    return kept


@contextmanager
def imports_shared(*, ends_as_python: bool = False, runs_functions: bool = False) -> Iterator[None]:
    """Does what ``fork_server.imports_shared`` does, and leaves the server for the next test.

    A test in another folder or with other variables begins another one.
    """
    with mock.patch.dict(os.environ):
        os.environ.pop("PYTEST_CURRENT_TEST", None)
        kept = _with(runs_functions, _surroundings(), ends_as_python)
        with mock.patch.object(fork_server, "_servers", [kept.server]):
            yield
