"""Commands of kgprof, each a process of its own that is forked from one that has imported torch.

A new ``python -m kgprof`` starts a process that imports torch, from which kgprof forks its
children: 2.7 s of a processor, which many tests would pay for once more. Here that process is
forked too. Its modules are those that it would have imported, and the rest is kgprof's own: folder,
variables, streams, signals, exit code, and the children.

What a command's torch would read while it is imported makes it a new process.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

from kgprof.record.processes import fork_server
from tests import unprofiled_guards

ROOT = Path(__file__).resolve().parent.parent
LENGTH = 8  # bytes before each order
# what no torch reads
OURS = ("KGPROF_", "GITHUB_", "PYTEST_", "CI", "TMPDIR", "PWD", "CUDA_VISIBLE_DEVICES")
# What libraries set in this process where tests use them, Inductor the first three and
# scikit-learn the others: no user has them, and each command after that would be a new process.
OF_LIBRARIES = (
    *("CUBLAS_WORKSPACE_CONFIG", "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR", "TRITON_CACHE_DIR"),
    *("KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK"),
)
# At the outermost level, as in a process of its own: a child's program has no other frame below it.
# One that did not raise leaves as kgprof's other children do, without taking torch's modules apart:
# tests/record/passes/test_script_endings.py holds that programs end as Python ends them.
# What ends it is imported before: a program may leave no ``__import__`` behind.
BOOTSTRAP = """
from tests import commands
main, args = commands.next_role(int(__import__("sys").argv[1]))
from kgprof.record.processes.child import leave
del commands
main(*args)
leave()
"""


def run(
    *args: str | Path, cwd: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """``python -m kgprof ARGS``, with these variables and no other."""
    words = [str(each) for each in args]
    set_by_user = {name: environment[name] for name in environment if name not in OF_LIBRARIES}
    given = {**set_by_user, "PYTHONPATH": str(ROOT)}
    server = _server()
    if _of_torch(given) != server.begun_with:
        return subprocess.run(
            [sys.executable, "-m", "kgprof", *words],
            cwd=cwd,
            env=given,
            capture_output=True,
            text=True,
            check=False,
        )
    order = {"args": words, "cwd": str(cwd), "environment": given}
    pipes = (os.pipe(), os.pipe())
    _send(server.channel, order, [writing for _, writing in pipes])
    for _, writing in pipes:
        os.close(writing)
    with ThreadPoolExecutor(len(pipes)) as threads:
        said = list(threads.map(_read, [reading for reading, _ in pipes]))
    code = int.from_bytes(server.channel.recv(LENGTH), signed=True)
    return subprocess.CompletedProcess(words, code, *said)


def without_settings() -> dict[str, str]:
    """The variables of this process, without what a developer or a CI machine may have set."""
    return {
        key: value
        for key, value in os.environ.items()
        if not key.startswith("KGPROF_") and key not in ("CI", *OF_LIBRARIES)
    }


class _Server:
    def __init__(self) -> None:
        given = {**without_settings(), "PYTHONPATH": str(ROOT)}
        self.begun_with = _of_torch(given)
        self.channel, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-c", BOOTSTRAP, str(theirs.fileno())],
                cwd=ROOT,
                env=given,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,  # Python remembers what kind of a file it was
                stderr=subprocess.STDOUT,
                pass_fds=(theirs.fileno(),),
            )
        atexit.register(self.end)

    def end(self) -> None:
        self.channel.close()
        self.process.communicate()  # it prints nothing; this closes the pipe, too


@functools.cache
def _server() -> _Server:
    return _Server()


def _of_torch(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith(OURS)}


def _read(descriptor: int) -> str:
    with os.fdopen(descriptor, encoding="utf-8") as stream:
        return stream.read()


def _send(channel: socket.socket, order: Mapping[str, Any], files: Sequence[int]) -> None:
    data = json.dumps(order).encode()
    socket.send_fds(channel, [len(data).to_bytes(LENGTH)], list(files))
    channel.sendall(data)


def _next(channel: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    header, files, _, _ = socket.recv_fds(channel, LENGTH, 3)
    data, length = b"", int.from_bytes(header)
    while len(data) < length and (more := channel.recv(length - len(data))):
        data += more
    return (json.loads(data), list(files)) if data else None


# ---------------------------------------------------------------- in the server


def next_role(descriptor: int) -> tuple[Callable[..., Any], tuple[str, ...]]:
    """Returns in a command, and in the process that forks its children."""
    channel = socket.socket(fileno=descriptor)
    del sys.path[0]
    for name in (*fork_server.MODULES, *unprofiled_guards.FIRST_COMPILE):
        __import__(name)
    unprofiled_guards.keep()
    while (received := _next(channel)) is not None:
        order, files = received
        if not (pid := os.fork()):
            channel.close()
            return _command(order, files)
        for file in files:
            os.close(file)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        channel.sendall(code.to_bytes(LENGTH, signed=True))
    os._exit(0)


def _command(
    order: Mapping[str, Any], files: Sequence[int]
) -> tuple[Callable[..., Any], tuple[str, ...]]:
    for standard, file in enumerate(files, start=1):
        os.dup2(file, standard)
        os.close(file)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["environment"])
    ours, theirs = socket.socketpair()
    if not os.fork():
        ours.close()
        return _forks_children(theirs)
    theirs.close()

    fork_server.subprocess = SimpleNamespace(  # type: ignore[assignment]
        **{**vars(subprocess), "Popen": functools.partial(_Forks, ours)}
    )
    sys.path.insert(0, order["cwd"])
    sys.argv = ["kgprof", *order["args"]]
    return _ended, ()


def _ended() -> NoReturn:
    """Without taking torch's modules apart, of which a command has none: a second."""
    from kgprof.__main__ import main

    try:
        main()
    except SystemExit as ends:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(ends.code if isinstance(ends.code, int) else 1)


class _Forks(fork_server.Forked):
    """Takes the place of the ``Popen`` that starts kgprof's fork server."""

    def __init__(
        self,
        channel: socket.socket,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        pass_fds: tuple[int],
        **_: Any,
    ) -> None:
        reading, writing = os.pipe()
        _send(channel, {"args": command, "environment": dict(env)}, (*pass_fds, writing))
        os.close(writing)
        pid = int.from_bytes(channel.recv(LENGTH))
        super().__init__(pid, os.fdopen(reading, "rb"))
        channel.close()

    def kill(self) -> None:
        self.send_signal(9)

    def communicate(self) -> None:
        self.wait()
        self.stdout.close()


def _forks_children(channel: socket.socket) -> tuple[Callable[..., Any], tuple[str, ...]]:
    if (received := _next(channel)) is None:
        os._exit(0)
    order, (theirs, writing) = received
    os.setsid()
    for standard in (1, 2):
        os.dup2(writing, standard)
    os.close(writing)
    os.environ.clear()
    os.environ.update(order["environment"])
    home, _, parent = order["args"][-3:]
    sys.argv = ["-c", home, str(theirs), parent]
    for name in [each for each in sys.modules if each.partition(".")[0] == "tests"]:
        del sys.modules[name]
    channel.sendall(os.getpid().to_bytes(LENGTH))
    channel.close()
    return fork_server.main, (str(theirs), parent)
