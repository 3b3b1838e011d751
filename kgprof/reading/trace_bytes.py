"""The bytes of a trace file, unpacked piece by piece: plain or gzip, cut off, damaged, or a bomb."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator
from pathlib import Path

from kgprof.errors import InputError
from kgprof.reading import files

MAX_BYTES = 2**34  # unpacked; the events of 16 GiB fill 4 GiB of columns
PIECE_BYTES = 2**19  # larger ones are no faster, and the events of one piece are in memory at once
_READ_BYTES = 2**18  # packed
_SALVAGE_BYTES = 2**9  # zlib gives nothing of a piece that holds an error, so the last ones are small


class TraceBytes:
    """Iterates over the pieces of ``path``, which lies in the folder ``within`` where one is given (files.opened);
    ``warnings`` is whole when the iteration is over.

    Raises InputError for a file that cannot be read.
    """

    def __init__(self, path: Path, within: Path | None = None) -> None:
        self.warnings: list[str] = []
        self._path = path
        self._within = within
        self._unpacked = 0
        self._packed = 0  # read so far, of a gzip file

    def __iter__(self) -> Iterator[bytes]:
        try:
            with files.opened(self._path, self._within) as file:
                packed = file.read(len(files.GZIP_MAGIC)) == files.GZIP_MAGIC
                file.seek(0)
                size = _READ_BYTES if packed else PIECE_BYTES
                chunks = iter(lambda: file.read(size), b"")
                yield from self._limited(self._inflated(chunks) if packed else chunks)
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror or error}", path=self._path.name) from error

    def _limited(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            left = MAX_BYTES - self._unpacked
            self._unpacked += len(piece)
            yield piece[:left]
            if len(piece) > left:
                self.warnings.append(f"the trace is larger than {MAX_BYTES:,} bytes: only its beginning was read")
                return
            if self._packed and self._unpacked > max(files.EXPANSION_FROM, files.MAX_EXPANSION * self._packed):
                self.warnings.append(
                    f"the gzip data unpacks to more than {files.MAX_EXPANSION} times its size, which is not "
                    f"plausible: only its first {self._unpacked:,} bytes were read"
                )
                return

    def _inflated(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """Everything that unpacks. A gzip file may consist of several members, one after the other."""
        member = zlib.decompressobj(wbits=31)
        for chunk in chunks:
            self._packed += len(chunk)
            pending = chunk
            while pending:
                if member.eof:
                    member = zlib.decompressobj(wbits=31)
                before = member.copy()
                try:
                    yield member.decompress(pending, PIECE_BYTES)
                except zlib.error as error:
                    with contextlib.suppress(zlib.error):  # up to the error
                        for start in range(0, len(pending), _SALVAGE_BYTES):
                            yield before.decompress(pending[start : start + _SALVAGE_BYTES])
                    self.warnings.append(f"the gzip data is damaged after {self._unpacked:,} unpacked bytes: {error}")
                    return
                pending = member.unused_data if member.eof else member.unconsumed_tail
        if not member.eof:
            yield member.flush()
            self.warnings.append(f"the gzip data is truncated after {self._unpacked:,} unpacked bytes")
