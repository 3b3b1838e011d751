"""Which call of the workload is running, for every source that has to say when something happened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

BEFORE_THE_FIRST = -1


class CallIndex:
    """``current`` counts from 0; it is BEFORE_THE_FIRST until a call has begun, and stays after the last one ended."""

    __slots__ = ("current",)

    def __init__(self) -> None:
        self.current = BEFORE_THE_FIRST

    @contextmanager
    def call(self) -> Iterator[None]:
        self.current += 1
        yield
