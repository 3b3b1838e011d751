"""A trace for another program's viewer. EXPORTERS is the room's table of contents: a new viewer is
one line here."""

from pathlib import Path
from typing import Protocol

from kgprof.export.perfetto import Perfetto
from kgprof.export.speedscope import Speedscope


class Exporter(Protocol):
    """``name`` is what ``kgprof export --to`` calls the viewer."""

    @property
    def name(self) -> str: ...

    def export(self, trace: Path, title: str) -> tuple[bytes | Path, tuple[str, ...]]:
        """The file's bytes, or the file to copy as it is; and what could not be read of ``trace``,
        in sentences.

        ``trace`` is gzipped Kineto JSON. Raises InputError where it cannot be read or holds nothing
        to show.
        """


EXPORTERS: tuple[Exporter, ...] = (Speedscope(), Perfetto())
