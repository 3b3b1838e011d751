"""A process that has imported torch, and forks the children that run a function or a program: they
need not import it.

It imports nothing of the workload, computes nothing and starts no thread. From it another one is
forked on demand that has imported Inductor too, for a function's plan and the runs that compile: a
child begins with the modules that it would have imported by the time it is prepared, or that
kgprof's listeners need in it. A program imports Inductor itself. A child is forked twice, so that
kgprof adopts it and ends it as one that it started itself; it sets what a new process would have
been given (session, streams, environment, arguments, seeds), and goes on as one.

What the children share and new processes would not: the addresses of libraries, and the seed of
Python's hashes. Rounds, whose spread is that between processes, are started as new ones for that
reason.
"""

import contextlib
import functools
import importlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any
from unittest import mock

from kgprof import model as m
from kgprof.record.ground.flags import Variables
from kgprof.signals import Signals

ANSWERS_S = 60.0  # a busy machine takes 20 s to import torch
ENDS_S = 5.0
POLL_S = 0.05
LENGTH = 8  # bytes before each order
# known after the plan; a child puts it into torch._inductor.config itself
VECTOR_ISA_OK = "TORCHINDUCTOR_VEC_ISA_OK"
# torch looks for the others when it needs them
LATE = (
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
    VECTOR_ISA_OK,
    "TMPDIR",
    "MLFLOW_TRACKING_URI",
)
MODULES = (
    "torch",
    "torch._dynamo",
    "kgprof.record.listeners.kernel_provenance",
    "kgprof.record.passes.script",
    "kgprof.record.processes.child",
    "kgprof.record.processes.planning",
    *(f"kgprof.record.passes.{declared.module}" for declared in m.PASSES.values()),
)
COMPILER = ("torch._inductor.compile_fx",)  # what the first torch.compile(...) imports


class Forked:
    """A child that a server forked: as much of ``subprocess.Popen`` as is needed of it."""

    def __init__(self, pid: int, stdout: IO[bytes]) -> None:
        self.pid = pid
        self.stdout = stdout
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
        if timeout is None:
            with contextlib.suppress(ChildProcessError):  # another thread was told of its end first
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        until = time.monotonic() + (timeout or 0.0)
        while self.poll() is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired("a forked child", timeout or 0.0)
            time.sleep(POLL_S)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


class ForkServer:
    """kgprof's side of it: the first process, and a channel to each of the two with the environment
    that it has."""

    said = b""  # what torch printed while it was imported
    broken = False  # from then on children are started as new processes
    process: subprocess.Popen[bytes] | None = None

    def __init__(self, python: str = sys.executable) -> None:
        self.python = python
        self._ready: dict[bool, socket.socket] = {}  # with Inductor, without
        self._has: dict[str, str] = {}
        self._without_inductor = False  # that process has ended: importing it opened a GPU

    def channel(
        self, command: Sequence[str], environment: Variables, compiles: bool
    ) -> socket.socket | None:
        """None where a child's torch would have read another environment while it was imported."""
        needed = {name: value for name, value in environment.items() if name not in LATE}
        if self.process is None:
            ours, theirs = socket.socketpair()
            with theirs:
                self.process = subprocess.Popen(
                    [*command, str(theirs.fileno()), str(os.getpid())],
                    stdin=subprocess.DEVNULL,
                    # as that of a child is: what Python knows of its streams does not change
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    pass_fds=(theirs.fileno(),),
                    env=environment,
                    start_new_session=True,
                )
            self._ready[False], self._has = ours, needed
        compiles = compiles and not self._without_inductor
        if compiles and self._has == needed and True not in self._ready:
            ours, theirs = socket.socketpair()
            with theirs:
                _send(self._ready[False], {}, (theirs.fileno(),))
            self._ready[True] = ours
        return self._ready[compiles] if self._has == needed else None

    def lost_inductor(self, channel: socket.socket) -> bool:
        """Whether it was the process with Inductor that has ended; children import that themselves
        from then on."""
        if channel is not self._ready.get(True):
            return False
        self._ready.pop(True).close()
        self._without_inductor = True
        return True

    def answer(self, channel: socket.socket, signals: Signals) -> int:
        """The pid of the child. Raises OSError where it does not come in time, or a signal does."""
        until = time.monotonic() + ANSWERS_S
        answer = b""
        channel.settimeout(POLL_S)
        assert self.process is not None
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)
        while not answer:
            if time.monotonic() > until or signals.came:
                raise TimeoutError
            with contextlib.suppress(TimeoutError):
                if not (answer := channel.recv(LENGTH)):
                    raise ConnectionError("the fork server has ended")
            self.said += self.process.stdout.read() or b""  # as much as there is
        return int.from_bytes(answer)

    def end(self) -> None:
        for channel in self._ready.values():
            channel.close()
        self._ready.clear()
        if self.process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.0 if self.broken else ENDS_S)
            self.process.kill()
            self.process.communicate()
            self.process = None


_servers: list[ForkServer] = []  # one for each interpreter


@contextlib.contextmanager
def imports_shared() -> Iterator[None]:
    """Within, children are forked from a process that has imported torch, on Linux; within another
    one of these from the same process."""
    if _servers:
        yield
        return
    _servers.append(ForkServer())
    try:
        yield
    finally:
        while _servers:
            _servers.pop().end()


def _server_of(python: str) -> ForkServer:
    """Of this interpreter; begun where there is none yet."""
    for server in _servers:
        if server.python == python:
            return server
    _servers.append(ForkServer(python))
    return _servers[-1]


def is_server(pid: int) -> bool:
    return any(server.process is not None and server.process.pid == pid for server in _servers)


def forked(
    command: Sequence[str],
    job_file: str,
    environment: Variables,
    files: tuple[int, int],
    signals: Signals,
    compiles: bool,
    folder: str,
) -> tuple[Forked, bytes] | None:
    """A child, and what was printed before it began; None where it has to be started as a new
    process. ``command`` starts the server if there is none; ``files``: the child's descriptors for
    its events and of its standard input; ``folder``: in which it runs."""
    if sys.platform != "linux" or not _servers or (server := _server_of(command[0])).broken:
        return None
    reading, writing = os.pipe()
    pid = 0
    stdout = os.fdopen(reading, "rb")
    try:
        order = {
            "job": job_file,
            "environment": dict(environment),
            "parent": os.getpid(),
            "folder": folder,
        }
        while (channel := server.channel(command, environment, compiles)) is not None:
            try:
                _send(channel, order, (*files, writing))
                pid = server.answer(channel, signals)
                break
            except ConnectionError:
                if not server.lost_inductor(channel):
                    raise
    except OSError:
        server.broken = True
        server.end()
    finally:
        os.close(writing)
    if pid:
        return Forked(pid, stdout), server.said
    stdout.close()
    return None


def _send(channel: socket.socket, order: Mapping[str, Any], files: Sequence[int]) -> None:
    data = json.dumps(order).encode()  # in ASCII: a name that is no UTF-8 comes back as it was
    channel.settimeout(ANSWERS_S)
    socket.send_fds(channel, [len(data).to_bytes(LENGTH)], list(files))
    channel.sendall(data)


# ---------------------------------------------------------------- in the server


def main(descriptor: str, parent: str) -> None:
    """Returns only in a child, which has ended its work by then."""
    from kgprof.record.processes import child

    channel = socket.socket(fileno=int(descriptor))
    child.end_with_the_parent(int(parent))
    _import(MODULES)
    while (received := _next(channel)) is not None:
        order, files = received
        pid = _fork()
        if pid == 0 and "job" in order:
            _begin(channel, order, files)
            child.main(order["job"], str(files[0]))
            return
        if pid == 0:
            channel.close()
            channel = socket.socket(fileno=files.pop())
            child.end_with_the_parent(os.getppid())
            with mock.patch("torch.cuda.is_available", functools.partial(bool, gpu_is_there())):
                _import(COMPILER)
        elif "job" in order:
            os.waitpid(pid, 0)
        for file in files:
            os.close(file)
    with contextlib.suppress(ChildProcessError):
        os.wait()  # for the one with Inductor, whose channel is closed as well
    os._exit(0)


def gpu_is_there() -> bool:
    """Asked in another process: one that has asked CUDA cannot be forked, and torch 2.11's Inductor
    asks on import."""
    import torch

    pid = _fork()
    if pid == 0:
        os._exit(not torch.cuda.is_available())
    return os.waitpid(pid, 0)[1] == 0


def _import(modules: Sequence[str]) -> None:
    """Ends the server where that has opened a GPU: a process that is forked from it could not use
    it."""
    for name in modules:
        importlib.import_module(name)
    for opened in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # that of this listing
            if os.readlink(opened).startswith("/dev/nvidia"):
                os._exit(1)


def _next(channel: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    header, files, _, _ = socket.recv_fds(channel, LENGTH, 3)
    data = b""
    length = int.from_bytes(header)
    while len(data) < length and (more := channel.recv(length - len(data))):
        data += more
    return (json.loads(data), files) if data else None


def _fork() -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        # Of Python 3.12 where OpenBLAS has threads, which it ends before a fork and starts again
        # after it.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _begin(channel: socket.socket, order: Mapping[str, Any], files: Sequence[int]) -> None:
    """The process between server and child ends and leaves the child to kgprof; this gives it what
    a new one has."""
    try:
        if _fork():
            os._exit(0)
    except OSError:
        channel.sendall(bytes(LENGTH))
        os._exit(1)
    os.setsid()
    until = time.monotonic() + ENDS_S
    while os.getppid() != order["parent"] and time.monotonic() < until:
        time.sleep(0.001)
    os.environ.clear()
    os.environ.update(order["environment"])
    tempfile.tempdir = None  # the server's
    os.chdir(order["folder"])
    if "torch._inductor.config" in sys.modules:
        from torch._inductor import config

        config.cpp.vec_isa_ok = {"1": True, "0": False}.get(os.environ.get(VECTOR_ISA_OK, ""))
    # As Python does it with its own: else all children draw the same numbers.
    importlib.import_module("numpy").random.seed()
    importlib.import_module("torch").default_generator.seed()
    events, stdin, writing = files
    for standard, file in ((0, stdin), (1, writing), (2, writing)):
        os.dup2(file, standard)
    for file in (stdin, writing):
        os.close(file)
    sys.argv[2:] = [order["job"], str(events)]
    channel.sendall(os.getpid().to_bytes(LENGTH))
    channel.close()
