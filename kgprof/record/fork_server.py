"""A process that has imported torch, and forks the children of a function's runs: they need not import it again.

It imports nothing of the workload, computes nothing and starts no thread. From it another one is forked on demand that
has imported Inductor too, for the runs that compile: a child begins with the modules that it would have imported by
the time it is prepared, and no others. A child is forked twice, so that kgprof adopts it and ends it as one that it
started itself; it sets what a new process would have been given (session, streams, environment, arguments), and goes
on as one: its exit is the interpreter's.

What the children share and new processes would not: the addresses of libraries, and the seed of Python's hashes.
Rounds, whose spread is that between processes, are started as new ones for that reason.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from kgprof import model as m

ANSWERS_S = 60.0  # a busy machine takes 20 s to import torch
ENDS_S = 5.0
POLL_S = 0.05
LENGTH = 8  # bytes before each order
MOST_FILES = 4
LATE = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")  # torch looks for them when it needs them
FOR_INDUCTOR = ("TORCHINDUCTOR_VEC_ISA_OK",)  # torch._inductor.config is not imported before
MODULES = (
    "torch",
    *(f"kgprof.record.{name}" for name in ("child", "eager_calls", "environment", "kernel_provenance", "planning")),
    *(f"kgprof.record.{declared.module}" for declared in m.PASSES.values()),
)
COMPILER = ("torch._dynamo", "torch._inductor.compile_fx")  # what the first torch.compile(...) imports


class ForkServer(contextlib.AbstractContextManager["ForkServer"]):
    """kgprof's side. ``start`` gives None where a child has to be started as a new process."""

    def __init__(self) -> None:
        self.said = b""  # what torch printed while it was imported
        self._server: subprocess.Popen[bytes] | None = None
        self._ready: dict[bool, tuple[socket.socket, dict[str, str]]] = {}  # with Inductor, without
        self._broken = False  # from then on children are started as new processes

    def __exit__(self, *_: object) -> None:
        self._end()

    def start(
        self,
        command: Sequence[str],
        arguments: Sequence[str],
        environment: Mapping[str, str],
        events: int,
        *,
        compiles: bool,
        given_up: Callable[[], bool],
    ) -> Forked | None:
        """``command`` starts the server if there is none; the child gets ``arguments`` and the descriptor ``events``.
        ``given_up`` is asked while the child is waited for."""
        if self._broken:
            return None
        reading, writing = os.pipe()
        pid = 0
        try:
            if (channel := self._channel(command, environment, compiles)) is not None:
                order = {"arguments": list(arguments), "environment": dict(environment), "parent": os.getpid()}
                _send(channel, order, (events, writing))
                pid = self._answer(channel, given_up)
        except OSError:
            self._broken = True
            self._end()
        finally:
            os.close(writing)
        stdout = os.fdopen(reading, "rb")
        if pid:
            return Forked(pid, stdout)
        stdout.close()
        return None

    def is_process(self, pid: int) -> bool:
        return self._server is not None and self._server.pid == pid

    def _channel(self, command: Sequence[str], environment: Mapping[str, str], compiles: bool) -> socket.socket | None:
        """To a server that has the environment which a child's torch would have read while it was imported."""
        needed = {name: value for name, value in environment.items() if name not in LATE}
        plain = {name: value for name, value in needed.items() if name not in FOR_INDUCTOR}
        if self._server is None:
            ours, theirs = socket.socketpair()
            with theirs:
                self._server = subprocess.Popen(
                    [*command, str(theirs.fileno()), str(os.getpid())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,  # as that of a child is: what Python knows of its streams does not change
                    stderr=subprocess.STDOUT,
                    pass_fds=(theirs.fileno(),),
                    env=environment,
                    start_new_session=True,
                )
            assert self._server.stdout is not None
            os.set_blocking(self._server.stdout.fileno(), False)
            self._ready[False] = ours, plain
        channel, has = self._ready[False]
        if has != plain:
            return None
        if not compiles:
            return channel
        if True in self._ready and self._ready[True][1] != needed:
            self._ready.pop(True)[0].close()
        if True not in self._ready:
            ours, theirs = socket.socketpair()
            with theirs:
                _send(channel, {"environment": dict(environment)}, (theirs.fileno(),))
            self._ready[True] = ours, needed
        return self._ready[True][0]

    def _answer(self, channel: socket.socket, given_up: Callable[[], bool]) -> int:
        """Raises OSError where it does not come in time."""
        until = time.monotonic() + ANSWERS_S
        channel.settimeout(POLL_S)
        while time.monotonic() < until and not given_up():
            self._listen()
            with contextlib.suppress(TimeoutError):
                if not (answer := channel.recv(LENGTH)):
                    raise ConnectionError("the fork server has ended")
                self._listen()
                return int.from_bytes(answer)
        raise TimeoutError

    def _listen(self) -> None:
        assert self._server is not None
        assert self._server.stdout is not None
        self.said += self._server.stdout.read() or b""  # as much as there is

    def _end(self) -> None:
        for channel, _ in self._ready.values():
            channel.close()
        self._ready.clear()
        if self._server is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._server.wait(0.0 if self._broken else ENDS_S)
            self._server.kill()
            self._server.communicate()
            self._server = None


class Forked:
    """A child that a server forked: as much of ``subprocess.Popen`` as is needed of it."""

    def __init__(self, pid: int, stdout: IO[bytes]) -> None:
        self.pid, self.stdout, self.stderr = pid, stdout, None
        self.returncode: int | Any = None
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        with self._lock:
            if self.returncode is None:
                ended, status = os.waitpid(self.pid, os.WNOHANG)
                self.returncode = os.waitstatus_to_exitcode(status) if ended else None
            return self.returncode

    def wait(self, timeout: float | None = None) -> int | None:
        """Raises TimeoutExpired as Popen does."""
        until = None if timeout is None else time.monotonic() + timeout
        if until is None:
            with contextlib.suppress(ChildProcessError):  # another thread was told of its end first
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        while self.poll() is None and until is not None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired("a forked child", timeout or 0.0)
            time.sleep(POLL_S)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def _send(channel: socket.socket, order: Mapping[str, Any], files: Sequence[int]) -> None:
    data = json.dumps(order).encode()  # in ASCII: a name that is no UTF-8 comes back as it was
    channel.settimeout(ANSWERS_S)
    socket.send_fds(channel, [len(data).to_bytes(LENGTH)], list(files))
    channel.sendall(data)


# ---------------------------------------------------------------- in the server


def main(descriptor: str, parent: str) -> None:
    """Returns only in a child, which has ended its work by then."""
    from kgprof.record.child import end_with_the_parent

    channel = socket.socket(fileno=int(descriptor))
    end_with_the_parent(int(parent))
    _import(MODULES)
    while (received := _next(channel)) is not None:
        order, files = received
        if "arguments" in order:
            pid = _fork()
            if pid == 0:
                _between(channel)
                _begin(channel, order, files)
                from kgprof.record import child

                (job_file,) = order["arguments"]
                child.main(job_file, str(files[0]))
                return
            os.waitpid(pid, 0)
        elif _fork() == 0:
            channel.close()
            channel = socket.socket(fileno=files.pop())
            end_with_the_parent(os.getppid())
            os.environ.update(order["environment"])
            _import(COMPILER)
        for file in files:
            os.close(file)
    with contextlib.suppress(ChildProcessError):
        os.wait()  # for the one with Inductor, whose channel is closed as well
    os._exit(0)


def _import(modules: Sequence[str]) -> None:
    """Ends the server where that has opened a GPU: a process that is forked from it could not use it."""
    for name in modules:
        importlib.import_module(name)
    for opened in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # that of this listing
            if os.readlink(opened).startswith("/dev/nvidia"):
                print("importing torch opened a GPU", file=sys.stderr, flush=True)  # noqa: T201
                os._exit(1)


def _next(channel: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    header, files, _, _ = socket.recv_fds(channel, LENGTH, MOST_FILES)
    data, length = b"", int.from_bytes(header)
    while len(data) < length and (more := channel.recv(length - len(data))):
        data += more
    return (json.loads(data), files) if data else None


def _fork() -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        # Of Python 3.12 where OpenBLAS has threads, which it ends before a fork and starts again after it.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _between(channel: socket.socket) -> None:
    """The process between server and child, which ends at once and leaves the child to kgprof; goes on as the child."""
    try:
        pid = os.fork()
    except OSError:
        channel.sendall(bytes(LENGTH))
        os._exit(1)
    if pid:
        os._exit(0)


def _begin(channel: socket.socket, order: Mapping[str, Any], files: Sequence[int]) -> None:
    """What a new process is given."""
    os.setsid()
    until = time.monotonic() + ENDS_S
    while os.getppid() != order["parent"] and time.monotonic() < until:
        time.sleep(0.001)
    os.environ.clear()
    os.environ.update(order["environment"])
    for standard in (1, 2):
        os.dup2(files[1], standard)
    os.close(files[1])
    sys.argv[2:] = [*order["arguments"], str(files[0])]
    channel.sendall(os.getpid().to_bytes(LENGTH))
    channel.close()
