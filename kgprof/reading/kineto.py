"""Kineto's JSON trace streamed into columns: a few dozen bytes an event, whatever the file's size.

Its bytes are unpacked piece by piece: plain or gzip, cut off, damaged, or a bomb. Real traces hold
names that are not UTF-8 (freed code objects under ``with_stack``), tails that a kill cut off and
now and then an event of another shape. None of that loses the rest: what could not be read is
counted in ``warnings``.

The text is cut between two events and every part decoded as an array. A cut at a wrong place
(inside a string, or inside an event's arguments) gives two parts that are no JSON, so a part that
decodes was cut rightly; one that does not is read event by event.
"""

import contextlib
import json
import math
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from kgprof.errors import InputError
from kgprof.reading import files

MAX_BYTES = 2**34  # unpacked; the events of 16 GiB fill 4 GiB of columns
PIECE_BYTES = 2**19  # larger ones are no faster, and the events of one piece are in memory at once
_READ_BYTES = 2**18  # packed
# zlib gives nothing of a piece that holds an error, so the last ones are small
_SALVAGE_BYTES = 2**9


class TraceBytes:
    """Iterates over the pieces of ``path``, which lies in the folder ``within`` where one is given
    (files.opened); ``warnings`` is whole when the iteration is over.

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
            raise InputError(
                f"cannot be read: {error.strerror or error}", path=self._path.name
            ) from error

    def _limited(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            left = MAX_BYTES - self._unpacked
            self._unpacked += len(piece)
            yield piece[:left]
            if len(piece) > left:
                self.warnings.append(
                    f"the trace is larger than {MAX_BYTES:,} bytes: only its beginning was read"
                )
                return
            if self._packed and self._unpacked > max(
                files.EXPANSION_FROM, files.MAX_EXPANSION * self._packed
            ):
                self.warnings.append(
                    f"the gzip data unpacks to more than {files.MAX_EXPANSION} times its size, "
                    f"which is not plausible: only its first {self._unpacked:,} bytes were read"
                )
                return

    def _inflated(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """Everything that unpacks. A gzip file may consist of several members, one after the
        other."""
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
                    self.warnings.append(
                        f"the gzip data is damaged after {self._unpacked:,} unpacked bytes: {error}"
                    )
                    return
                pending = member.unused_data if member.eof else member.unconsumed_tail
        if not member.eof:
            yield member.flush()
            self.warnings.append(
                f"the gzip data is truncated after {self._unpacked:,} unpacked bytes"
            )


# As Kineto wrote them until 2021, and as it does now.
OLD_CATEGORIES = {
    "Operator": "cpu_op",
    "Runtime": "cuda_runtime",
    "Kernel": "kernel",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
}
NONE = -1  # in the columns ``stream``, ``correlation`` and ``sequence``
_LONGEST_EVENT = 2**23  # bytes; what goes on for longer than this without an end is no event
# so that an end in nanoseconds, a start and a duration, is a number of 64 bits
_LATEST_US = 2.0**63 / 2000
_SEPARATORS = b", \r\n\t"
_END = re.compile(rb"\}\s*,\s*\{")  # of an event that another one follows
_LAST_END = re.compile(rb"\}\s*\]")  # of the last one
# a part is cut at the last place that looks like an end, or at one of these before it
_LAST_ENDS = 4
_TAIL_BYTES = 2**14  # where it is looked for first
_NEXT = re.compile(r"\}\s*,\s*(?=\{)")
_BETWEEN_EVENTS = re.compile(r"[\s,]*")
_START_OF_EVENTS = re.compile(rb'(?<!\\)"traceEvents"\s*:\s*\[')
_LONGEST_HEAD = 2**22  # bytes before the events; a rank's process groups take some kilobytes
_START_BYTES = 64  # of which a part may lie in the next piece

Column = npt.NDArray[np.int64]
K = TypeVar("K")


class TraceEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A complete event (``ph`` X). Kineto writes microseconds with three decimals; here they are
    whole nanoseconds."""

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


class LaunchShape(msgspec.Struct, frozen=True, kw_only=True):
    """How a kernel was launched, as CUPTI says; or the size of a copy or a fill, whose other fields
    are then None."""

    registers: int | None = None  # of each thread
    shared_bytes: int | None = None  # of each block
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    blocks_per_sm: float | None = None
    warps_per_sm: float | None = None
    occupancy_percent: float | None = None  # CUPTI's estimate, in whole numbers
    size_bytes: int | None = None  # of a copy or a fill


class Collective(msgspec.Struct, frozen=True, kw_only=True):
    """What c10d says of a kernel that it launched."""

    name: str  # "allreduce", "all_to_allv"; a kernel called SendRecv may be several of them
    group: str = ""  # the ranks of its process group, as text; empty where it is not known


@dataclass(frozen=True, eq=False, kw_only=True)
class MemoryPoints:
    """Allocations and frees (``profile_memory``), in the file's order."""

    at_ns: Column
    allocated_bytes: Column  # of the device from then on
    change_bytes: Column  # negative: freed
    device: Column  # of a GPU its number; NONE: the CPU


@dataclass(frozen=True, eq=False, kw_only=True)
class Columns:
    """Complete events in the file's order, one array a field.

    ``category``, ``name``, ``thread``, ``shape`` and ``collective`` (NONE where an event has none)
    are indices.
    """

    category: npt.NDArray[np.int32]
    name: npt.NDArray[np.int32]
    thread: npt.NDArray[np.int32]
    start_ns: Column
    duration_ns: Column
    stream: Column  # NONE where an event has none
    correlation: Column
    # of the autograd node, on what makes it in the forward and on what runs it in the backward
    sequence: Column
    shape: npt.NDArray[np.int32]
    collective: npt.NDArray[np.int32]
    categories: tuple[str, ...]
    names: tuple[str, ...]
    threads: tuple[tuple[int | str, int | str], ...]  # process and thread
    shapes: tuple[LaunchShape, ...]
    collectives: tuple[Collective, ...]
    memory: MemoryPoints

    def __len__(self) -> int:
        return len(self.start_ns)

    @cached_property
    def end_ns(self) -> Column:
        return self.start_ns + self.duration_ns

    def of_category(self, *categories: str) -> npt.NDArray[np.bool_]:
        """Which events are of one of these."""
        return np.array([known in categories for known in self.categories], np.bool_)[self.category]

    def named(self, *prefixes: str) -> npt.NDArray[np.bool_]:
        """Which events' names begin with one of these."""
        return np.array([known.startswith(prefixes) for known in self.names], np.bool_)[self.name]

    def called(self, *names: str) -> npt.NDArray[np.bool_]:
        """Which events have one of these names."""
        return np.array([known in names for known in self.names], np.bool_)[self.name]

    def name_of(self, index: int) -> str:
        name: int = self.name[index]
        return self.names[name]

    def lasted_ns(self, which: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> int:
        """Add up the durations of these events (a mask, or indices)."""
        return int(self.duration_ns[which].sum())

    def event(self, index: int) -> TraceEvent:
        process, thread = self.threads[self.thread[index]]
        return TraceEvent(
            category=self.categories[self.category[index]],
            name=self.name_of(index),
            process=process,
            thread=thread,
            start_ns=int(self.start_ns[index]),
            duration_ns=int(self.duration_ns[index]),
            stream=_or_none(self.stream[index]),
            correlation=_or_none(self.correlation[index]),
        )


def _or_none(value: np.integer[Any]) -> int | None:
    return None if value == NONE else int(value)


@dataclass(frozen=True, kw_only=True)
class Trace:
    columns: Columns
    warnings: tuple[str, ...] = ()

    @cached_property
    def events(self) -> tuple[TraceEvent, ...]:
        """Every event as an object, in the file's order: a few hundred bytes each, so not for large
        traces."""
        return tuple(self.columns.event(index) for index in range(len(self.columns)))


# ---------------------------------------------------------------- reading


class _Arguments(msgspec.Struct, gc=False):
    stream: int | None = None
    correlation: int | None = None
    sequence: int | None = msgspec.field(name="Sequence number", default=None)
    # Of any type, because a trace of another shape must not lose the event; _shape sorts them out.
    registers: Any = msgspec.field(name="registers per thread", default=None)
    shared: Any = msgspec.field(name="shared memory", default=None)
    grid: Any = None
    block: Any = None
    blocks_per_sm: Any = msgspec.field(name="blocks per SM", default=None)
    warps_per_sm: Any = msgspec.field(name="warps per SM", default=None)
    occupancy: Any = msgspec.field(name="est. achieved occupancy %", default=None)
    size_bytes: Any = msgspec.field(name="bytes", default=None)
    allocated: Any = msgspec.field(name="Total Allocated", default=None)
    change: Any = msgspec.field(name="Bytes", default=None)
    device: Any = msgspec.field(name="Device Id", default=None)
    device_type: Any = msgspec.field(name="Device Type", default=None)
    collective: Any = msgspec.field(name="Collective name", default=None)
    group: Any = msgspec.field(name="Process Group Ranks", default=None)


_NO_ARGUMENTS = _Arguments()
_NO_SHAPE = LaunchShape()
# an operator's arguments may go by the same names
_WITH_SHAPE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_CPU, _CUDA = 0, 1  # of torch's c10::DeviceType
_LARGEST_SIZE = 2**50  # of a number of bytes
_LARGEST_FIGURE = 1e12  # of a figure per SM or a percentage: beyond it, and for NaN, it is none


class _Event(msgspec.Struct, gc=False):
    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: float = math.nan  # which no comparison below lets through
    dur: float = math.nan
    args: _Arguments | None = None


_EVENTS = msgspec.json.Decoder(list[_Event])
_READER = json.JSONDecoder(strict=False)  # a garbage name may hold raw control characters


def read(path: Path, within: Path | None = None) -> Trace:
    """Read one trace file. ``within``: as files.opened has it. Raises InputError when it is
    missing, empty or no Kineto trace at all."""
    data = TraceBytes(path, within)
    pieces = iter(data)
    gathered = _Gathered()
    text = _Text(rest=_first_events(pieces, path.name, data.warnings))
    for piece in pieces:
        gathered.add(text.events(piece))
    gathered.add(text.events(b"", last=True))
    return Trace(
        columns=gathered.columns(),
        warnings=(*data.warnings, *text.warnings(), *gathered.warnings()),
    )


def metadata(path: Path, within: Path | None = None) -> dict[str, Any]:
    """What stands before the events: deviceProperties, distributedInfo, versions. Empty where that
    is no JSON.

    Raises InputError for a file that cannot be read.
    """
    head = b""
    for piece in TraceBytes(path, within):
        head += piece
        if (found := _START_OF_EVENTS.search(head)) or len(head) > _LONGEST_HEAD:
            break
    else:
        found = None
    text = (
        head[: found.start()].decode("utf-8", errors="replace").rstrip(", \r\n\t") if found else ""
    )
    try:
        value = json.loads(f"{text}}}", strict=False)
        # As an event's name is: what no UTF-8 can hold (a lone surrogate) is replaced.
        value = json.loads(_repaired(json.dumps(value, ensure_ascii=False)))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _first_events(pieces: Iterator[bytes], name: str, damage: Sequence[str]) -> bytes:
    """What follows the bracket that opens the array of events, as far as it has been read."""
    head, nothing, at_start = b"", True, True
    for piece in pieces:
        head += piece
        nothing = nothing and not head.strip()
        if found := _START_OF_EVENTS.search(head):
            return head[found.end() :]
        # the bare array that the trace event format also allows
        if at_start and head.lstrip()[:1] == b"[":
            return head.lstrip()[1:]
        head = head[-_START_BYTES:]
        at_start = nothing
    if nothing and damage:
        raise InputError(f"nothing in it can be read: {'; '.join(damage)}", path=name)
    if nothing:
        raise InputError("the trace is empty", path=name)
    raise InputError("; ".join(("not a Kineto trace: it has no traceEvents", *damage)), path=name)


# ---------------------------------------------------------------- from text to events


@dataclass(kw_only=True)
class _Text:
    """What has been read of the array of events and not yet been taken."""

    rest: bytes
    closed: bool = False  # its closing bracket was reached
    malformed: int = 0
    lost_bytes: int = 0  # between two events

    def events(self, piece: bytes, *, last: bool = False) -> list[_Event]:
        """The events that are whole with this piece; with ``last`` all there will ever be."""
        if self.closed:
            return []
        self.rest = (self.rest + piece).lstrip(_SEPARATORS)
        quick = self._all_at_once(last=last)
        return self._one_by_one(last=last) if quick is None else quick

    def _all_at_once(self, *, last: bool) -> list[_Event] | None:
        """Up to the last place that looks like the end of an event; None where that does not
        decode."""
        for end in _ends(self.rest, _LAST_END if last else _END):
            events = _decoded(self.rest[:end])
            if events is not None:
                self.rest = self.rest[end:]
                self.closed = last
                return events
        return None

    def _one_by_one(self, *, last: bool) -> list[_Event]:
        """The slow way, for what does not decode as a whole."""
        text = self.rest.decode("utf-8", errors="surrogateescape")
        events: list[_Event] = []
        at = _after(text, 0)
        while at < len(text) and not self.closed:
            if text[at] == "]":
                self.closed = True
                break
            try:
                value, end = _READER.raw_decode(text, at)
            except (ValueError, RecursionError):  # also a number of thousands of digits
                too_long = len(text) - at > _LONGEST_EVENT
                # where the next one seems to begin
                found = _NEXT.search(text, at) if last or too_long else None
                if found is None and (last or not too_long):
                    break  # the rest of it may come, or it was the end
                # where its end may have begun
                following = found.end() if found else len(text) - _START_BYTES
                self.lost_bytes += following - at
                at = following
                continue
            at = _after(text, end)
            event = _event(value)
            if event is None:
                self.malformed += 1
            else:
                events.append(event)
        self.rest = text[at:].encode("utf-8", errors="surrogateescape")
        return events

    def warnings(self) -> Iterator[str]:
        if not self.closed:
            yield (
                f"the trace was not read to its end: its last {len(self.rest):,} bytes are not a "
                "complete event"
            )
        if self.lost_bytes:
            yield f"{self.lost_bytes:,} bytes between the events could not be read"
        if self.malformed:
            yield f"{self.malformed:,} events of an unknown shape were left out"


def _ends(text: bytes, end: re.Pattern[bytes]) -> list[int]:
    """The last places where an event seems to end, the last one first: just behind its brace."""
    window = _TAIL_BYTES
    while True:
        start = max(0, len(text) - window)
        found = [match.start() + 1 for match in end.finditer(text, start)]
        if found or not start:
            return found[: -_LAST_ENDS - 1 : -1]
        window *= 8


def _decoded(part: bytes) -> list[_Event] | None:
    """``part`` as the inside of an array, with names repaired where they are no UTF-8; None when it
    is none."""
    try:
        return _EVENTS.decode(b"[%b]" % part)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        repaired = f"[{part.decode('utf-8', errors='replace')}]"
    try:
        return _EVENTS.decode(repaired)
    except (msgspec.DecodeError, RecursionError):
        return None  # which event it was shows when they are read one by one


def _after(text: str, position: int) -> int:
    found = _BETWEEN_EVENTS.match(text, position)
    return found.end() if found else position


def _event(value: Any) -> _Event | None:
    try:
        event = msgspec.convert(value, _Event, strict=False)
    # a byte in place of an event is the second
    except (msgspec.ValidationError, UnicodeEncodeError, RecursionError):
        return None
    for field in ("name", "cat", "pid", "tid"):
        if isinstance(text := getattr(event, field), str) and not text.isascii():
            setattr(event, field, _repaired(text))
    return event


def _repaired(text: str) -> str:
    """json lets lone surrogates through, which no UTF-8 document can hold; a byte that is no UTF-8
    is one here."""
    return text.encode("utf-16", errors="surrogatepass").decode("utf-16", errors="replace")


# ---------------------------------------------------------------- from events to columns


class _Index(dict[K, int]):
    """Each key's place, in the order in which they are first asked for."""

    def __missing__(self, key: K) -> int:
        self[key] = place = len(self)
        return place


class _Gathered:
    """Columns in the making: an array a part and field."""

    def __init__(self) -> None:
        self._parts: list[dict[str, npt.NDArray[Any]]] = []  # by the names of Columns' fields
        self._categories: _Index[str] = _Index()
        self._names: _Index[str] = _Index()
        self._threads: _Index[tuple[int | str, int | str]] = _Index()
        self._shapes: dict[LaunchShape, int] = {}
        self._collectives: _Index[Collective] = _Index()
        self._known_shapes: dict[tuple[Any, ...], int] = {}
        self._impossible = 0
        self._memory: list[tuple[int, int, int, int]] = []  # as MemoryPoints has them

    def add(self, events: list[_Event]) -> None:
        complete = [event for event in events if event.ph == "X"]
        if len(complete) < len(events):
            self._memory += [
                point for event in events if event.name == "[memory]" and (point := _memory(event))
            ]
        start_us = np.array([event.ts for event in complete], np.float64)
        duration_us = np.array([event.dur for event in complete], np.float64)
        possible = (
            (np.abs(start_us) <= _LATEST_US) & (duration_us >= 0) & (duration_us <= _LATEST_US)
        )
        if not possible.all():
            self._impossible += int((~possible).sum())
            complete = [
                event for event, kept in zip(complete, possible.tolist(), strict=True) if kept
            ]
            start_us = start_us[possible]
            duration_us = duration_us[possible]
        arguments = [event.args or _NO_ARGUMENTS for event in complete]
        categories, names, threads = self._categories, self._names, self._threads
        self._parts.append(
            {
                "category": np.array([categories[e.cat] for e in complete], np.int32),
                "name": np.array([names[e.name] for e in complete], np.int32),
                "thread": np.array([threads[e.pid, e.tid] for e in complete], np.int32),
                "start_ns": np.rint(start_us * 1000).astype(np.int64),
                "duration_ns": np.rint(duration_us * 1000).astype(np.int64),
                "stream": _numbers([a.stream for a in arguments]),
                "correlation": _numbers([a.correlation for a in arguments]),
                "sequence": _numbers([a.sequence for a in arguments]),
                "shape": np.array(
                    [self._shape(e) if e.cat in _WITH_SHAPE else NONE for e in complete], np.int32
                ),
                "collective": np.array([self._collective(e) for e in complete], np.int32),
            }
        )

    def _collective(self, event: _Event) -> int:
        arguments = event.args
        if arguments is None or not isinstance(arguments.collective, str):
            return NONE
        if event.cat != "kernel":
            return NONE
        group = arguments.group if isinstance(arguments.group, str) else ""
        return self._collectives[Collective(name=arguments.collective, group=group)]

    def _shape(self, event: _Event) -> int:
        arguments = event.args
        if arguments is None:
            return NONE
        try:
            # Most launches are like an earlier one, and looking that up is ten times as quick as to
            # check them.
            key = (
                arguments.registers,
                arguments.shared,
                arguments.blocks_per_sm,
                arguments.warps_per_sm,
                arguments.occupancy,
                arguments.size_bytes,
                *(arguments.grid or ()),
                *(arguments.block or ()),
            )
            known = self._known_shapes.get(key)
        except TypeError:  # of another form
            return self._new_shape(arguments)
        if known is None:
            known = self._known_shapes[key] = self._new_shape(arguments)
        return known

    def _new_shape(self, arguments: _Arguments) -> int:
        found = LaunchShape(
            registers=_whole(arguments.registers),
            shared_bytes=_whole(arguments.shared),
            grid=_extent(arguments.grid),
            block=_extent(arguments.block),
            blocks_per_sm=_figure(arguments.blocks_per_sm),
            warps_per_sm=_figure(arguments.warps_per_sm),
            occupancy_percent=_figure(arguments.occupancy),
            size_bytes=_whole(arguments.size_bytes),
        )
        return NONE if found == _NO_SHAPE else self._shapes.setdefault(found, len(self._shapes))

    def columns(self) -> Columns:
        return Columns(
            **{
                name: np.concatenate([part[name] for part in self._parts])
                for name in self._parts[0]
            },
            categories=tuple(OLD_CATEGORIES.get(name, name) for name in self._categories),
            names=tuple(self._names),
            threads=tuple(self._threads),
            shapes=tuple(self._shapes),
            collectives=tuple(self._collectives),
            memory=MemoryPoints(
                **{
                    name: np.array([point[at] for point in self._memory], np.int64)
                    for at, name in enumerate(
                        ("at_ns", "allocated_bytes", "change_bytes", "device")
                    )
                }
            ),
        )

    def warnings(self) -> Iterator[str]:
        if self._impossible:
            yield f"{self._impossible:,} events with a missing or impossible time were left out"


def _memory(event: _Event) -> tuple[int, int, int, int] | None:
    """None for a device that is neither the CPU nor a GPU of CUDA's kind, and for numbers that are
    none."""
    found = event.args
    if event.ph != "i" or found is None or not abs(event.ts) <= _LATEST_US:
        return None
    allocated = _whole(found.allocated)
    device = NONE if found.device_type == _CPU else _whole(found.device)
    if (
        allocated is None
        or device is None
        or found.device_type not in (_CPU, _CUDA)
        or type(found.change) is not int
    ):
        return None
    if max(allocated, abs(found.change), device) >= _LARGEST_SIZE:
        return None
    return round(event.ts * 1000), allocated, found.change, device


def _whole(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _figure(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and 0 <= value < _LARGEST_FIGURE else None


def _extent(value: Any) -> tuple[int, ...]:
    """Of a grid or a block: three numbers."""
    whole = (
        isinstance(value, list)
        and len(value) == 3
        and all(_whole(one) is not None for one in value)
    )
    return tuple(value) if whole else ()


def _numbers(values: list[int | None]) -> Column:
    known = [NONE if value is None else value for value in values]
    try:
        return np.array(known, np.int64)
    except OverflowError:
        return np.array([NONE if value.bit_length() > 63 else value for value in known], np.int64)
