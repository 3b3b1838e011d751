"""Kineto's JSON trace, plain or gzipped, as typed events in whole nanoseconds.

Real traces hold names that are not UTF-8 (freed code objects under ``with_stack``), tails that a kill cut off and now
and then an event of another shape. None of that loses the rest: what could not be read is counted in ``warnings``.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from kgprof.errors import InputError

MAX_TRACE_BYTES = 2**30  # unpacked; beyond it reading stops with a warning, so that a gzip bomb cannot take the machine
_CHUNK_BYTES = 2**20
_PIECE_BYTES = 2**12
_GZIP_MAGIC = b"\x1f\x8b"
_BETWEEN_EVENTS = re.compile(r"[\s,]*")
_START_OF_EVENTS = re.compile(r'"traceEvents"\s*:\s*\[')


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceEvent:
    """A complete event (``ph`` X). Kineto writes microseconds with three decimals; here they are whole nanoseconds."""

    category: str
    name: str
    process: int | str
    thread: int | str
    start_ns: int
    duration_ns: int
    stream: int | None = None
    correlation: int | None = None

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.duration_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    events: tuple[TraceEvent, ...]  # in the file's order
    warnings: tuple[str, ...] = ()


class _Arguments(msgspec.Struct):
    stream: int | None = None
    correlation: int | None = None


class _Event(msgspec.Struct):
    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: float = 0.0
    dur: float = 0.0
    args: _Arguments | None = None


class _File(msgspec.Struct):
    events: list[_Event] = msgspec.field(name="traceEvents")


def read(path: Path) -> Trace:
    """Read one trace file. Raises InputError when it is missing, empty or no Kineto trace at all."""
    data, warnings = _unpacked(path)
    if not data.strip():
        raise InputError("the trace is empty", path=path.name)
    text = data.decode("utf-8", errors="replace")
    try:
        raw = msgspec.json.decode(text, type=_File).events
    except msgspec.DecodeError:
        raw, more = _one_by_one(text, path.name)
        warnings += more
    events = tuple(_complete(raw))
    return Trace(events=events, warnings=warnings)


def _complete(raw: list[_Event]) -> Iterator[TraceEvent]:
    for event in raw:
        if event.ph != "X":
            continue
        arguments = event.args
        yield TraceEvent(
            category=event.cat,
            name=event.name,
            process=event.pid,
            thread=event.tid,
            start_ns=round(event.ts * 1000),
            duration_ns=round(event.dur * 1000),
            stream=arguments.stream if arguments else None,
            correlation=arguments.correlation if arguments else None,
        )


# ---------------------------------------------------------------- bytes


def _unpacked(path: Path) -> tuple[bytes, tuple[str, ...]]:
    try:
        with path.open("rb") as file:
            head = file.read(_CHUNK_BYTES)
            chunks = _chunks(head, iter(lambda: file.read(_CHUNK_BYTES), b""))
            return _inflated(chunks) if head.startswith(_GZIP_MAGIC) else _limited(chunks)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", path=path.name) from error


def _chunks(head: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield head
    yield from rest


def _limited(chunks: Iterator[bytes]) -> tuple[bytes, tuple[str, ...]]:
    data = bytearray()
    for chunk in chunks:
        data += chunk
        if len(data) > MAX_TRACE_BYTES:
            return bytes(data[:MAX_TRACE_BYTES]), (_too_large(),)
    return bytes(data), ()


def _inflated(chunks: Iterator[bytes]) -> tuple[bytes, tuple[str, ...]]:
    """Everything that unpacks, and a warning where the compressed data breaks off or is damaged."""
    data = bytearray()
    stream = zlib.decompressobj(wbits=31)
    try:
        for piece in _pieces(chunks):
            pending = piece
            while pending:
                data += stream.decompress(pending, MAX_TRACE_BYTES + 1 - len(data))
                if len(data) > MAX_TRACE_BYTES:
                    return bytes(data[:MAX_TRACE_BYTES]), (_too_large(),)
                # A gzip file may consist of several members, one after the other.
                pending = stream.unused_data if stream.eof else stream.unconsumed_tail
                if stream.eof and pending:
                    stream = zlib.decompressobj(wbits=31)
    except zlib.error as error:
        return bytes(data), (f"the gzip data is damaged after {len(data):,} unpacked bytes: {error}",)
    if not stream.eof:
        return bytes(data), (f"the gzip data breaks off after {len(data):,} unpacked bytes",)
    return bytes(data), ()


def _pieces(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """zlib gives nothing of a piece that holds an error, so the pieces are small."""
    for chunk in chunks:
        yield from (chunk[start : start + _PIECE_BYTES] for start in range(0, len(chunk), _PIECE_BYTES))


def _too_large() -> str:
    return f"the trace is larger than {MAX_TRACE_BYTES:,} bytes: only its beginning was read"


# ---------------------------------------------------------------- damaged traces


def _one_by_one(text: str, name: str) -> tuple[list[_Event], tuple[str, ...]]:
    """The slow way for a trace that does not decode as a whole: event after event, until nothing more decodes."""
    position = _first_event(text, name)
    decoder = json.JSONDecoder(strict=False)  # a garbage name may hold raw control characters
    events: list[_Event] = []
    malformed = 0
    while (position := _after(text, position)) < len(text) and text[position] != "]":
        try:
            value, position = decoder.raw_decode(text, position)
        except (json.JSONDecodeError, RecursionError):
            break
        event = _event(value)
        malformed += event is None
        if event is not None:
            events.append(event)
    warnings = []
    if position >= len(text) or text[position] != "]":
        warnings.append(
            f"the trace breaks off: {len(events):,} events were read from its first {position:,} of "
            f"{len(text):,} characters"
        )
    if malformed:
        warnings.append(f"{malformed:,} events of an unknown shape were left out")
    return events, tuple(warnings)


def _first_event(text: str, name: str) -> int:
    found = _START_OF_EVENTS.search(text)
    if found:
        return found.end()
    start = _after(text, 0)
    if text[start : start + 1] == "[":  # the bare array that the trace event format also allows
        return start + 1
    raise InputError("this is no Kineto trace: it holds no traceEvents", path=name)


def _after(text: str, position: int) -> int:
    found = _BETWEEN_EVENTS.match(text, position)
    return found.end() if found else position


def _event(value: Any) -> _Event | None:
    try:
        event = msgspec.convert(value, _Event, strict=False)
    except msgspec.ValidationError:
        return None
    if not (math.isfinite(event.ts) and math.isfinite(event.dur)):
        return None
    # json lets lone surrogates through, which no UTF-8 document can hold.
    return msgspec.structs.replace(event, name=event.name.encode("utf-8", errors="replace").decode())
