"""What a source of facts is: a context manager that listens to torch and leaves it as it was found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Protocol

from kgprof import model as m


class Source(Protocol):
    """Listens from enter to exit. Exit restores everything that enter touched, also when the workload raised."""

    @property
    def name(self) -> str: ...

    @property
    def unavailable(self) -> str:
        """Why this torch does not offer it (known once entered); empty when it does."""

    def __enter__(self) -> object: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@contextmanager
def listening(sources: Iterable[Source]) -> Iterator[None]:
    """All of ``sources`` at once, entered in order and left in reverse."""
    with ExitStack() as stack:
        for source in sources:
            stack.enter_context(source)
        yield


def unavailable(sources: Iterable[Source]) -> tuple[m.Unavailable, ...]:
    """Each source that this torch does not offer."""
    return tuple(m.Unavailable(capture=s.name, why=s.unavailable) for s in sources if s.unavailable)
