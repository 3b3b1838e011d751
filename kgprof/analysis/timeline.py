"""Adding up intervals, in whole nanoseconds so that sums are exact."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kgprof.analysis.kineto import TraceEvent

Interval = tuple[int, int]  # start and end, nanoseconds
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

    def clip(self, interval: Interval) -> Interval:
        """What of an interval lies inside; empty (start == end) when nothing does."""
        start = min(max(interval[0], self.start_ns), self.end_ns)
        return start, max(start, min(interval[1], self.end_ns))

    def around(self, intervals: Iterable[Interval]) -> Window:
        """This window, widened until it holds every interval."""
        every = [(self.start_ns, self.end_ns), *intervals]
        return window_of(every)


def profiler_steps(events: Iterable[TraceEvent]) -> tuple[Interval, ...]:
    """The steps that torch.profiler marked on the host. (The GPU's mirror of them has another category.)"""
    return tuple(
        (event.start_ns, event.end_ns)
        for event in events
        if event.name.startswith(STEP_PREFIX) and event.category in ("user_annotation", "cpu_op")
    )


def window_of(intervals: Sequence[Interval]) -> Window:
    """From the first start to the last end. There must be at least one interval."""
    return Window(start_ns=min(start for start, _ in intervals), end_ns=max(end for _, end in intervals))


def union_ns(intervals: Iterable[Interval]) -> int:
    """Time covered by at least one interval."""
    covered = 0
    reached = -_NEVER
    for start, end in sorted(intervals):
        if end > reached:
            covered += end - max(start, reached)
            reached = end
    return covered


def self_times_ns(intervals: Sequence[Interval]) -> list[int]:
    """Of one thread: each interval's time without what ran inside it, in the order given.

    Every moment belongs to the interval that started last among those that are open. For properly nested intervals
    that is duration minus children; for intervals that merely overlap (Kineto rounds, and mixes clocks) it still
    assigns each moment once, so the result always adds up to union_ns.
    """
    own = [0] * len(intervals)
    open_now: list[int] = []
    clock = -_NEVER

    def advance(until: int) -> None:
        nonlocal clock
        while open_now and clock < until:
            top = open_now[-1]
            end = intervals[top][1]
            if end > clock:
                own[top] += min(end, until) - clock
                clock = min(end, until)
            if end <= clock:
                open_now.pop()
        clock = until

    # Of two that start together the longer one is the outer one.
    for index in sorted(range(len(intervals)), key=lambda i: (intervals[i][0], -intervals[i][1], i)):
        advance(intervals[index][0])
        open_now.append(index)
    advance(_NEVER)
    return own


def by_thread(events: Iterable[TraceEvent]) -> dict[tuple[int | str, int | str], list[TraceEvent]]:
    """Events of each (process, thread), in the order given."""
    threads: dict[tuple[int | str, int | str], list[TraceEvent]] = defaultdict(list)
    for event in events:
        threads[event.process, event.thread].append(event)
    return threads
