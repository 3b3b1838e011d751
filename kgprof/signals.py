"""The signals that end a command: SIGINT, SIGTERM, SIGHUP and SIGQUIT, each by its own name."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ENDING = tuple(
    signal.Signals[name]
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")
    if name in signal.Signals.__members__
)
# `timeout` and a closing terminal send theirs to the process and to its group: that is one signal
APART_S = 0.3


class Signals(contextlib.AbstractContextManager["Signals"]):
    """Hands each to ``on``; ``came`` is the first. One that is ignored (nohup), or C code's to
    handle, stays as it is, and so does one that would end the process, unless ``unhandled`` asks
    for those as well."""

    def __init__(self, on: Callable[[signal.Signals], None], *, unhandled: bool = False) -> None:
        self.came: signal.Signals | None = None
        self._on = on
        self._unhandled = unhandled
        self._last = -APART_S
        self._handlers: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Signals:
        # no other thread is ever interrupted
        if threading.current_thread() is threading.main_thread():
            for number in ENDING:
                handler = signal.getsignal(number)
                if callable(handler) or (self._unhandled and handler is signal.SIG_DFL):
                    self._handlers[number] = handler
        for number in self._handlers:
            signal.signal(number, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _take(self, number: int, frame: object) -> None:
        now = time.monotonic()
        before = self._last
        self._last = now
        if now - before > APART_S:
            self.came = self.came or signal.Signals(number)
            self._on(signal.Signals(number))


def words(number: signal.Signals) -> str:
    if number is signal.SIGINT:
        return "Ctrl-C"
    return number.name


def catches(pid: int, number: int) -> bool:
    """Whether a process has a handler for it. Without a /proc nobody knows, and the answer is
    no."""
    with contextlib.suppress(OSError, StopIteration, ValueError):
        lines = (
            Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
        )
        mask = next(line.split()[1] for line in lines if line.startswith("SigCgt:"))
        return bool(int(mask, 16) >> (number - 1) & 1)
    return False
