"""Which call of the workload is running, for every source that has to say when something
happened."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

from kgprof import model as m

if TYPE_CHECKING:
    from kgprof.record.listeners.tensor_probe import TensorProbe


class CallIndex:
    """``current`` counts from 0; it is BEFORE_THE_FIRST until a call has begun, and stays after the
    last one ended."""

    __slots__ = ("current", "watchers")

    # Of this process: what ends it is described outside of the call.
    raised_in: ClassVar[int | None] = None

    def __init__(self) -> None:
        self.current = m.BEFORE_THE_FIRST
        # that look at the workload before each call, and after one that ended
        self.watchers: list[TensorProbe] = []

    @contextmanager
    def call(self) -> Iterator[None]:
        """Around one call: what is seen inside has its number."""
        self.begin()
        try:
            yield
        except BaseException:
            CallIndex.raised_in = self.current
            raise
        self.end()

    def begin(self) -> None:
        self.current += 1
        for watcher in self.watchers:
            watcher.call_begins()

    def end(self) -> None:
        for watcher in self.watchers:
            watcher.call_ended()

    def counted(self, session_step: Callable[[], object]) -> Callable[[], object]:
        """``session_step``, each of whose calls is a call of the workload."""

        def step() -> object:
            with self.call():
                return session_step()

        return step
