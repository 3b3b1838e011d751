"""The one module that opens files which others may have written: Recordings, traces, reports, configuration.

Only regular files are opened, no symbolic link leads out of the folder that a person named, and every read has a limit.
A refusal is an OSError whose words complete "cannot be read: ...", without ``errno`` where a file exceeds a limit.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import json
import os
import re
import stat
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

JSON_BYTES = 64 * 2**20  # of one file; the longest that kgprof writes is TIMING's, 26 MB for a million samples
TOML_BYTES, TOML_LINE = 2**20, 2**16
GZIP_MAGIC = b"\x1f\x8b"
DEEPEST = 100  # of JSON; torch's records nest some ten deep
MAX_EXPANSION = 100  # unpacked over packed; traces pack ten- to thirtyfold, and gzip can do a thousandfold
EXPANSION_FROM = 2**28  # unpacked bytes from which on that is looked at
MANY_LINES = 2**20  # that a gzip file may have beside one for each of its bytes
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
_MARK = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[{]|[\]}]')
# The time that tomllib takes grows with the square of the parts of a key.
_LONG_KEY = re.compile(r"""(?<![\w-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){100}""")


def opened(path: Path, within: Path | None = None) -> BinaryIO:
    """A regular file, to read from. ``within``: the folder that no symbolic link may lead out of; without it the
    person named the file itself, and a link is followed. Raises OSError."""
    real = Path(os.path.realpath(path, strict=True))
    folder = Path(os.path.realpath(within)) if within is not None else real.parent
    if not real.is_relative_to(folder):
        raise OSError(errno.ELOOP, f"it lies outside of {within}; put the file itself there", str(path))
    descriptor = os.open(folder, getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC)
    for part in real.relative_to(folder).parts:  # each in the one before it, whatever is renamed meanwhile
        above = descriptor
        try:
            descriptor = os.open(part, _FLAGS, dir_fd=above)
        finally:
            os.close(above)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file (a folder, a pipe or a device); name a file", str(path))
    return os.fdopen(descriptor, "rb")


def content(path: Path, most_bytes: int = JSON_BYTES, within: Path | None = None) -> bytes:
    """All of a file. Raises OSError, also for one of more than ``most_bytes``."""
    with opened(path, within) as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise OSError(f"larger than {most_bytes:,} bytes, the most that kgprof reads of such a file")
    return data


def lines(
    path: Path, within: Path | None, *, longest: int, most_bytes: int, most: int = sys.maxsize
) -> Iterator[bytes]:
    """Its lines without their ends, gzipped or not as its first bytes say: up to the first of more than ``longest``
    bytes, and at most ``most`` of ``most_bytes`` unpacked. Then raises OSError; EOFError and zlib.error for damage."""
    with opened(path, within) as raw:
        size = os.fstat(raw.fileno()).st_size
        most, most_bytes = min(most, size + MANY_LINES), min(most_bytes, max(EXPANSION_FROM, MAX_EXPANSION * size))
        packed = raw.read(len(GZIP_MAGIC)) == GZIP_MAGIC
        raw.seek(0)
        file: Any = gzip.GzipFile(fileobj=raw) if packed else raw
        while line := file.readline(longest + 1):
            most, most_bytes = most - 1, most_bytes - len(line)
            if len(line) > longest:
                raise OSError(f"a line is longer than {longest:,} bytes, and kgprof reads none that is")
            if most < 0 or most_bytes < 0:
                raise OSError("it unpacks to more lines or bytes than kgprof reads of such a file")
            yield line.removesuffix(b"\n")


def nests_deeper(text: bytes, most: int) -> bool:
    """Whether brackets and braces of JSON are open in each other more than ``most`` times."""
    depth = 0
    for mark in _MARK.finditer(text) if text.count(b"[") + text.count(b"{") > most else ():
        depth += {b"[": 1, b"{": 1, b"]": -1, b"}": -1}.get(mark[0], 0)
        if depth > most:
            return True
    return False


def json_object(text: str | bytes) -> dict[str, Any]:
    """Of a record or its payload; empty for what is no JSON object, or nests deeper than any of torch's."""
    data = text if isinstance(text, bytes) else text.encode("utf-8", errors="replace")
    try:
        value = {} if nests_deeper(data, DEEPEST) else json.loads(data)
    except ValueError:  # UnicodeDecodeError is one
        return {}
    return value if isinstance(value, dict) else {}


def toml(text: str) -> dict[str, Any]:
    """A configuration. Raises ValueError, in words, for what is no TOML, and for a line or a nesting beyond need."""
    if any(len(line) > TOML_LINE for line in text.splitlines()):
        raise ValueError(f"a line is longer than {TOML_LINE:,} characters")
    with contextlib.suppress(RecursionError):
        if not _LONG_KEY.search(text):
            return tomllib.loads(text)
    raise ValueError("its keys, tables or arrays are nested too deeply")
