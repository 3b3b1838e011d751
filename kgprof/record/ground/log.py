"""What a child writes to stdout and stderr, kept in bounded space: the beginning and the end."""

import re
import threading
from pathlib import Path

HEAD_BYTES = 256 * 1024  # here the compile logs are
TAIL_BYTES = 256 * 1024  # and here the last words of a run that died

# Kineto of torch 2.13 writes two such lines a profiler session to fd 2, and KINETO_LOG_LEVEL does
# not stop them.
_NOISE = re.compile(rb"USDT:.{0,200}?Sync\w{0,40}Handler\.cpp:\d+\] profiler_(start|stop)\n?")
_WITHOUT_ITS_END = (b"] profiler_start", b"] profiler_stop")


class Quiet:
    """Takes these lines out of what a process writes. The end of one comes in a write of its own,
    and where it begins a progress bar may stand."""

    def __init__(self) -> None:
        self._ends = False

    def __call__(self, data: bytes) -> bytes:
        text = _NOISE.sub(b"", data.removeprefix(b"\n") if self._ends else data)
        self._ends = data.endswith(_WITHOUT_ITS_END)
        return text


class BoundedLog:
    """Takes bytes in any pieces. The head is on disk at once; ``close`` adds what was cut, in
    words, and the tail.

    A write that fails does not stop ``feed`` (the child would block on a full pipe); ``close``
    raises it. What comes after ``close`` (from a process that outlived the child's group) is
    dropped.
    """

    def __init__(
        self, path: Path, *, head_bytes: int = HEAD_BYTES, tail_bytes: int = TAIL_BYTES
    ) -> None:
        self._path = path
        self._head_left = head_bytes
        self._tail_bytes = tail_bytes
        self._tail = bytearray()
        self._cut_bytes = 0
        self._partial_line = b""
        self._failure: OSError | None = None
        self._lock = threading.Lock()
        self._closed = False
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("wb", buffering=0)

    def feed(self, data: bytes) -> None:
        with self._lock:
            if not self._closed:
                lines = (self._partial_line + data).splitlines(keepends=True)
                # A line without an end waits for the rest, unless it has grown past what is kept
                # anyway.
                waits = (
                    lines
                    and not lines[-1].endswith((b"\n", b"\r"))
                    and len(lines[-1]) < self._tail_bytes
                )
                self._partial_line = lines.pop() if waits else b""
                for line in lines:
                    self._take(line)

    def close(self) -> None:
        """Write the tail. Raises the OSError that an earlier write met."""
        with self._lock:
            self._closed = True
            self._take(self._partial_line)
            if self._cut_bytes:
                self._write(b"\n[kgprof: %d bytes of the log left out here]\n" % self._cut_bytes)
            self._write(self._tail)
            self._file.close()
        if self._failure is not None:
            raise self._failure

    def _take(self, line: bytes) -> None:
        if not line:
            return
        if len(line) <= self._head_left and not self._tail:
            self._head_left -= len(line)
            self._write(line)
            return
        self._head_left = 0
        self._tail += line
        if (excess := len(self._tail) - self._tail_bytes) > 0:
            # lines; of one that is too long its end is kept
            whole = self._tail.find(b"\n", excess - 1, -1) + 1
            self._cut_bytes += whole or excess
            del self._tail[: whole or excess]

    def _write(self, data: bytes | bytearray) -> None:
        if self._failure is None:
            try:
                self._file.write(data)
            except OSError as error:
                self._failure = error
