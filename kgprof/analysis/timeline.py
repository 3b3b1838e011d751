"""Adding up intervals, in whole nanoseconds so that sums are exact.

Intervals are an array of 64-bit integers of shape [n, 2]: start and end of each. A list of pairs does as well.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kgprof.analysis.kineto import Columns

Intervals = npt.NDArray[np.int64]
STEP_PREFIX = "ProfilerStep#"
_NEVER = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The stretch of wall time that is broken down."""

    start_ns: int
    end_ns: int

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns

    def clip(self, intervals: npt.ArrayLike) -> Intervals:
        """What of each interval lies inside; empty (start == end) where nothing does."""
        clipped = np.clip(as_intervals(intervals), self.start_ns, self.end_ns)
        clipped[:, 1] = np.maximum(clipped[:, 0], clipped[:, 1])
        return clipped

    def touches(self, intervals: Intervals) -> npt.NDArray[np.bool_]:
        """Which of them are partly inside."""
        touching: npt.NDArray[np.bool_] = (intervals[:, 0] < self.end_ns) & (intervals[:, 1] > self.start_ns)
        return touching

    def around(self, intervals: npt.ArrayLike) -> Window:
        """This window, widened until it holds every interval."""
        own = as_intervals([(self.start_ns, self.end_ns)])
        return window_of(np.concatenate([own, as_intervals(intervals)]))


def as_intervals(intervals: npt.ArrayLike) -> Intervals:
    return np.asarray(intervals, np.int64).reshape(-1, 2)


def intervals_of(columns: Columns, which: npt.NDArray[np.bool_]) -> Intervals:
    """When each of these events began and ended."""
    return np.stack([columns.start_ns[which], columns.end_ns[which]], axis=1)


def profiler_steps(columns: Columns) -> Intervals:
    """The steps that torch.profiler marked on the host. (The GPU's mirror of them has another category.)"""
    return intervals_of(columns, columns.named(STEP_PREFIX) & columns.of_category("user_annotation", "cpu_op"))


def window_of(intervals: npt.ArrayLike) -> Window:
    """From the first start to the last end. There must be at least one interval."""
    every = as_intervals(intervals)
    return Window(start_ns=int(every[:, 0].min()), end_ns=int(every[:, 1].max()))


def union_ns(intervals: npt.ArrayLike) -> int:
    """Time covered by at least one interval."""
    every = as_intervals(intervals)
    if not len(every):
        return 0
    ordered = every[np.argsort(every[:, 0], kind="stable")]
    reached = np.maximum.accumulate(ordered[:, 1])
    # What an interval adds begins where all before it have ended.
    added_from = np.maximum(ordered[1:, 0], reached[:-1])
    return int(ordered[0, 1] - ordered[0, 0] + np.maximum(0, ordered[1:, 1] - added_from).sum())


def self_times_ns(intervals: npt.ArrayLike) -> Intervals:
    """Of one thread: each interval's time without what ran inside it, in the order given, of shape [n].

    Every moment belongs to the interval that started last among those that are open. For properly nested intervals
    that is duration minus children; for intervals that merely overlap (Kineto rounds, and mixes clocks) it still
    assigns each moment once, so the result always adds up to union_ns.
    """
    every = as_intervals(intervals)
    ends: list[int] = every[:, 1].tolist()
    own = [0] * len(ends)
    open_now: list[int] = []
    clock = -_NEVER

    def advance(until: int) -> None:
        nonlocal clock
        while open_now and clock < until:
            top = open_now[-1]
            end = ends[top]
            if end > clock:
                reached = min(end, until)
                own[top] += reached - clock
                clock = reached
            if end <= clock:
                open_now.pop()
        clock = until

    # Of two that start together the longer one is the outer one.
    order = np.lexsort((-every[:, 1], every[:, 0]))
    for index, start in zip(order.tolist(), every[order, 0].tolist(), strict=True):
        advance(start)
        open_now.append(index)
    advance(_NEVER)
    return np.array(own, np.int64)
