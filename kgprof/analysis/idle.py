"""Why the device had nothing to do: each gap is cut at the moment when the host asked for what came next.

    device  ████ kernel 1 ████                          ████ kernel 2 ████
    host                        ──────── [launch of 2]
                               |  host   |    launch    |

Before that call the device waited for the host, and what the host did then is named by the innermost span that was
open on its thread; from the call on it waited for the launch to arrive.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from kgprof.analysis import launches, timeline
from kgprof.analysis.kineto import Columns
from kgprof.analysis.launches import Indices
from kgprof.analysis.timeline import NOBODY, Intervals, Window
from kgprof.model import DeviceIdle, HostSpan

HOST_CATEGORIES = ("cpu_op", "user_annotation", "cuda_runtime", "cuda_driver", "python_function")
BETWEEN_SPANS = "(outside of every span)"  # Python that nothing in the trace names


def device_idle(columns: Columns, window: Window) -> DeviceIdle:
    """Every nanosecond of the window in which no kernel, copy or fill ran, under one of four causes."""
    events = np.flatnonzero(columns.of_category(*launches.DEVICE_CATEGORIES))
    events = events[np.argsort(columns.start_ns[events], kind="stable")]
    intervals = window.clip(timeline.intervals_of(columns, events))
    gaps = timeline.gaps(intervals)
    calls = launches.launched_by(columns, _ended_by(columns, events, gaps))
    known = calls != NOBODY
    asked_ns = np.clip(columns.start_ns[calls[known]], gaps[known, 0], gaps[known, 1])
    waiting = np.stack([gaps[known, 0], asked_ns], axis=1)
    idle_ns, gaps_ns = window.duration_ns - timeline.union_ns(intervals), int(_lengths(gaps).sum())
    host_ns, unknown_ns = int(_lengths(waiting).sum()), int(_lengths(gaps[~known]).sum())
    return DeviceIdle(
        total_us=idle_ns / 1000,
        host_us=host_ns / 1000,
        launch_us=(gaps_ns - host_ns - unknown_ns) / 1000,
        unknown_us=unknown_ns / 1000,
        edges_us=(idle_ns - gaps_ns) / 1000,
        gaps=len(gaps),
        host_spans=_host_spans(columns, waiting, calls[known]),
    )


def _ended_by(columns: Columns, events: Indices, gaps: Intervals) -> Indices:
    """The device event with which each gap ended; ``events`` are sorted by their start."""
    ended: Indices = events[np.searchsorted(columns.start_ns[events], gaps[:, 1])]
    return ended


def _lengths(intervals: Intervals) -> npt.NDArray[np.int64]:
    return intervals[:, 1] - intervals[:, 0]


def _host_spans(columns: Columns, waiting: Intervals, calls: Indices) -> tuple[HostSpan, ...]:
    """What the launching threads did while the device waited for them, by the innermost span's name; largest first."""
    spent: Counter[str] = Counter()
    for thread in np.unique(columns.thread[calls]):
        mine = np.flatnonzero(columns.of_category(*HOST_CATEGORIES) & (columns.thread == thread))
        owner = timeline.owners(timeline.intervals_of(columns, mine))
        for index, length in zip(*owner.within(waiting[columns.thread[calls] == thread]), strict=True):
            spent[BETWEEN_SPANS if index == NOBODY else columns.names[columns.name[mine[index]]]] += int(length)
    return tuple(_ranked(spent))


def _ranked(spent: Counter[str]) -> Iterator[HostSpan]:
    for name, length in sorted(spent.items(), key=lambda item: (-item[1], item[0])):
        if length:
            yield HostSpan(name=name, total_us=length / 1000)
