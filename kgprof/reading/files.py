"""The one module that opens files which others may have written: Recordings, traces, reports,
configuration.

Only regular files are opened, no symbolic link leads out of the folder that a person named, and
every read has a limit. A refusal is an OSError whose words complete "cannot be read: ...", without
``errno`` where a file exceeds a limit.
"""

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

# of one file; the longest that kgprof writes is TIMING's, 26 MB for a million samples
JSON_BYTES = 64 * 2**20
TOML_BYTES = 2**20
TOML_LINE = 2**16
GZIP_MAGIC = b"\x1f\x8b"
DEEPEST = 100  # of JSON; torch's records nest some ten deep
# unpacked over packed; traces pack ten- to thirtyfold, and gzip can do a thousandfold
MAX_EXPANSION = 100
EXPANSION_FROM = 2**28  # unpacked bytes from which on that is looked at
MANY_LINES = 2**20  # that a gzip file may have beside one for each of its bytes
_BLOCK = 2**20
_BLANK_LINES = re.compile(rb"\n{3,}")
# Windows has none of these four, and opens nothing below a descriptor.
_FLAGS, _FOLDER_FLAGS = (
    sum((getattr(os, name, 0) for name in names), os.O_RDONLY)
    for names in (("O_NONBLOCK", "O_NOFOLLOW", "O_CLOEXEC"), ("O_PATH", "O_DIRECTORY", "O_CLOEXEC"))
)
_IN_TURN = os.open in os.supports_dir_fd
# A string that does not end goes to the end of the text.
_MARK = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[\[{]|[\]}]', re.DOTALL)
# The time that tomllib takes grows with the square of the parts of a key.
_LONG_KEY = re.compile(r"""(?<![\w-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){100}""")


def opened(path: Path, within: Path | None = None) -> BinaryIO:
    """A regular file, to read from. ``within``: the folder that no symbolic link may lead out of;
    without it the person named the file itself, and a link is followed. Raises OSError."""
    real = Path(os.path.realpath(path, strict=True))
    folder = Path(os.path.realpath(within)) if within is not None else real.parent
    if not real.is_relative_to(folder):
        raise OSError(errno.ELOOP, f"it is outside {within}; put the file itself there", str(path))
    if _IN_TURN:
        descriptor = os.open(folder, _FOLDER_FLAGS)
        # each in the one before it, whatever is renamed meanwhile
        for part in real.relative_to(folder).parts:
            above = descriptor
            try:
                descriptor = os.open(part, _FLAGS, dir_fd=above)
            finally:
                os.close(above)
        status = os.fstat(descriptor)
    # looked at before it is opened: what is renamed in between is seen after it, but has been
    # opened
    else:
        before = os.lstat(real)
        descriptor = (
            os.open(real, _FLAGS | getattr(os, "O_BINARY", 0))
            if stat.S_ISREG(before.st_mode)
            else -1
        )
        status = os.fstat(descriptor) if descriptor >= 0 else before
        if not os.path.samestat(before, status):
            os.close(descriptor)
            raise OSError(errno.ELOOP, "it was replaced while it was opened; try again", str(path))
    if not stat.S_ISREG(status.st_mode):
        if descriptor >= 0:
            os.close(descriptor)
        raise OSError(
            errno.EINVAL, "not a regular file (a folder, pipe or device); give a file", str(path)
        )
    return os.fdopen(descriptor, "rb")


def stands(path: Path, within: Path) -> bool:
    """Whether there is a regular file that ``opened`` would open."""
    try:
        opened(path, within).close()
    except OSError:
        return False
    return True


def content(path: Path, most_bytes: int = JSON_BYTES, within: Path | None = None) -> bytes:
    """All of a file. Raises OSError, also for one of more than ``most_bytes``."""
    with opened(path, within) as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise OSError(f"larger than {most_bytes:,} bytes, the most that kgprof reads")
    return data


def lines(
    path: Path, within: Path | None, *, longest: int, most_bytes: int, most: int = sys.maxsize
) -> Iterator[bytes]:
    """Its lines without their ends, gzipped or not as its first bytes say: up to the first of more
    than ``longest`` bytes, and at most ``most`` of ``most_bytes`` unpacked. Then raises OSError;
    EOFError and zlib.error for damage. Of blank lines in a row one or a few are given."""
    with opened(path, within) as raw:
        size = os.fstat(raw.fileno()).st_size
        most = min(most, size + MANY_LINES)
        most_bytes = min(most_bytes, max(EXPANSION_FROM, MAX_EXPANSION * size))
        packed = raw.read(len(GZIP_MAGIC)) == GZIP_MAGIC
        raw.seek(0)
        file: Any = gzip.GzipFile(fileobj=raw) if packed else raw
        begun: list[bytes] = []  # pieces of a line whose end has not come, and their bytes
        held = 0
        is_long = False
        while block := file.read1(_BLOCK):
            most = most - block.count(b"\n")
            most_bytes = most_bytes - len(block)
            *whole, rest = _BLANK_LINES.sub(b"\n\n", block).split(b"\n")
            if whole:
                whole[0], begun, held = b"".join((*begun, whole[0])), [], 0
            begun.append(rest)
            held += len(rest)
            for line in whole:
                if is_long := len(line) > longest:
                    break
                yield line
            if is_long or held > longest:
                raise OSError(
                    f"a line is longer than {longest:,} bytes, the most that kgprof reads"
                )
            if most < 0 or most_bytes < 0:
                raise OSError("it unpacks to more lines or bytes than kgprof reads")
        if begun and (line := b"".join(begun)):
            yield line


def nests_deeper(text: bytes, most: int) -> bool:
    """Whether brackets and braces of JSON are open in each other more than ``most`` times."""
    depth = 0
    for mark in _MARK.finditer(text) if text.count(b"[") + text.count(b"{") > most else ():
        depth += {b"[": 1, b"{": 1, b"]": -1, b"}": -1}.get(mark[0], 0)
        if depth > most:
            return True
    return False


def json_object(text: str | bytes) -> dict[str, Any]:
    """Of a record or its payload; empty for what is no JSON object, or nests deeper than any of
    torch's."""
    data = text if isinstance(text, bytes) else text.encode("utf-8", errors="replace")
    try:
        value = {} if nests_deeper(data, DEEPEST) else json.loads(data)
    except ValueError:  # UnicodeDecodeError is one
        return {}
    return value if isinstance(value, dict) else {}


def toml(text: str) -> dict[str, Any]:
    """A configuration. Raises ValueError, in words, for what is no TOML, and for a line or a
    nesting beyond need."""
    if any(len(line) > TOML_LINE for line in text.splitlines()):
        raise ValueError(f"a line is longer than {TOML_LINE:,} characters")
    with contextlib.suppress(RecursionError):
        if not _LONG_KEY.search(text):
            document = tomllib.loads(text)
            repr(document)  # raises for a number that no error could show: 0xfff and so on
            return document
    raise ValueError("its keys, tables or arrays are nested too deeply")
