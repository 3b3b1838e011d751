"""Which call of the workload is running, for every source that has to say when something happened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from kgprof.workloads.protocol import Session

BEFORE_THE_FIRST = -1


class CallWatcher(Protocol):
    """Looks at the workload before and after each call."""

    def call_begins(self) -> None: ...

    def call_ended(self) -> None:
        """Not after a call that raised."""


class CallIndex:
    """``current`` counts from 0; it is BEFORE_THE_FIRST until a call has begun, and stays after the last one ended."""

    __slots__ = ("current", "watchers")

    def __init__(self) -> None:
        self.current = BEFORE_THE_FIRST
        self.watchers: list[CallWatcher] = []

    @contextmanager
    def call(self) -> Iterator[None]:
        self.current += 1
        for watcher in self.watchers:
            watcher.call_begins()
        yield
        for watcher in self.watchers:
            watcher.call_ended()


class CountedSession:
    """A session, with each of its steps counted as a call."""

    def __init__(self, session: Session, calls: CallIndex) -> None:
        self._session, self._calls = session, calls

    def step(self) -> object:
        with self._calls.call():
            return self._session.step()
