"""What was open when, on each thread of the host and each stream of the device, as openings and closings in order.

Every opening has its closing, and what was opened last is closed first, which is how flame graphs and stack viewers
want it. Events of one thread that merely overlap (Kineto rounds, and mixes clocks; so do kernels of one stream) are not
cut short: where the outer one ends, the inner one is closed and opened again, so that each keeps its whole duration.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from kgprof.reading.kineto import NONE, Columns
from kgprof.reading.launches import DEVICE_CATEGORIES, threads_of
from kgprof.reading.timeline import STEP_PREFIX

# python_function: of a trace that was recorded with_stack.
HOST_CATEGORIES = ("cpu_op", "user_annotation", "cuda_runtime", "cuda_driver", "python_function")
_PYTHON_FUNCTION = re.compile(r"(?P<file>.+)\((?P<line>\d{1,9})\): (?P<name>.+)")  # longer numbers are no lines
_NEVER = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """``file`` and ``line`` (from 1) of a Python function in a trace with stacks; of anything else there is none."""

    name: str
    file: str = ""
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    at_ns: int
    opens: bool  # else it closes
    frame: int  # index into ``Nesting.frames``


@dataclass(frozen=True, kw_only=True)
class Track:
    """One thread or stream."""

    name: str
    changes: tuple[Change, ...]


@dataclass(frozen=True, kw_only=True)
class Nesting:
    """Nanoseconds from the first event on; the thread that takes the steps comes first, streams come last."""

    frames: tuple[Frame, ...]
    tracks: tuple[Track, ...]

    @cached_property
    def end_ns(self) -> int:
        return max((track.changes[-1].at_ns for track in self.tracks), default=0)


def nesting(columns: Columns) -> Nesting:
    """Empty where the trace holds neither the host's events nor the device's."""
    host, device = columns.of_category(*HOST_CATEGORIES), columns.of_category(*DEVICE_CATEGORIES)
    known: dict[Frame, int] = {}  # each once
    of_name = np.array([known.setdefault(frame_of(name), len(known)) for name in columns.names], np.int64)
    zero = int(columns.start_ns[host | device].min(initial=_NEVER))
    tracks = tuple(
        Track(name=name, changes=tuple(_changes(columns, events, of_name, zero)))
        for name, events in (*_threads(columns, host), *_streams(columns, device))
    )
    return Nesting(frames=tuple(known), tracks=tracks)


def frame_of(name: str) -> Frame:
    found = _PYTHON_FUNCTION.fullmatch(name)
    if found is None:
        return Frame(name=name)
    return Frame(name=found["name"], file=found["file"], line=int(found["line"]))


def _threads(columns: Columns, host: npt.NDArray[np.bool_]) -> Iterator[tuple[str, npt.NDArray[np.intp]]]:
    """Name and events of each, the one that takes the steps first."""
    stepping = set(columns.thread[host & columns.named(STEP_PREFIX)].tolist())
    numbers = threads_of(columns, np.flatnonzero(host))
    for number in sorted(numbers, key=lambda one: (one not in stepping, _sortable(*columns.threads[one]))):
        process, thread = columns.threads[number]
        takes_steps = " (takes the steps)" if number in stepping else ""
        yield f"thread {thread} of process {process}{takes_steps}", np.flatnonzero(host & (columns.thread == number))


def _streams(columns: Columns, device: npt.NDArray[np.bool_]) -> Iterator[tuple[str, npt.NDArray[np.intp]]]:
    """Name and events of each. A stream's events may stand in rows of several names; two devices have a stream 7."""
    rows = sorted(set(zip(columns.thread[device].tolist(), columns.stream[device].tolist(), strict=True)))
    for row, stream in sorted(rows, key=lambda one: (_sortable(*columns.threads[one[0]]), one[1])):
        process, thread = columns.threads[row]
        of_device = device & (columns.thread == row) & (columns.stream == stream)
        yield f"stream {thread if stream == NONE else stream} of device {process}", np.flatnonzero(of_device)


def _sortable(process: int | str, thread: int | str) -> tuple[tuple[bool, int, str], ...]:
    """Numbers among themselves, before names."""
    return tuple((isinstance(one, str), 0 if isinstance(one, str) else one, str(one)) for one in (process, thread))


def _changes(
    columns: Columns, events: npt.NDArray[np.intp], of_name: npt.NDArray[np.int64], zero_ns: int
) -> Iterator[Change]:
    # Of two that start together the longer one is the outer one; of two that are alike the one that stands first.
    events = events[np.lexsort((-columns.end_ns[events], columns.start_ns[events]))]
    frames = of_name[columns.name[events]].tolist()
    starts = (columns.start_ns[events] - zero_ns).tolist()
    ends = (columns.end_ns[events] - zero_ns).tolist()
    open_now: list[int] = []  # the innermost last
    earliest: list[int] = []  # for each of them, the first end among it and all outside it

    def push(event: int) -> None:
        open_now.append(event)
        earliest.append(min(ends[event], earliest[-1]) if earliest else ends[event])

    def close(until: int) -> Iterator[Change]:
        """Whatever ends by then, in the order of its end."""
        while open_now and earliest[-1] <= until:
            at, again = earliest[-1], []
            while open_now and earliest[-1] <= at:
                earliest.pop()
                event = open_now.pop()
                yield Change(at_ns=at, opens=False, frame=frames[event])
                if ends[event] > at:  # it began inside one that ends before it
                    again.append(event)
            for event in reversed(again):
                push(event)
                yield Change(at_ns=at, opens=True, frame=frames[event])

    for index, start in enumerate(starts):
        yield from close(start)
        push(index)
        yield Change(at_ns=start, opens=True, frame=frames[index])
    yield from close(_NEVER)
