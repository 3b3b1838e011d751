"""Adding up intervals, in whole nanoseconds so that sums are exact.

Intervals are an array of 64-bit integers of shape [n, 2]: start and end of each. A list of pairs
does as well.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from kgprof.reading.kineto import Columns

Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Intervals = npt.NDArray[np.int64]
STEP_PREFIX = "ProfilerStep#"
NOBODY = -1
_NEVER = 2**62


class Window(msgspec.Struct, frozen=True, kw_only=True):
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

    def touches(self, intervals: Intervals) -> Mask:
        """Which of them are partly inside."""
        touching: Mask = (intervals[:, 0] < self.end_ns) & (intervals[:, 1] > self.start_ns)
        return touching

    def around(self, intervals: npt.ArrayLike) -> Window:
        """This window, widened until it holds every interval."""
        own = as_intervals([(self.start_ns, self.end_ns)])
        return window_of(np.concatenate([own, as_intervals(intervals)]))


def as_intervals(intervals: npt.ArrayLike) -> Intervals:
    return np.asarray(intervals, np.int64).reshape(-1, 2)


def intervals_of(columns: Columns, which: Mask | npt.NDArray[np.intp]) -> Intervals:
    """When each of these events (a mask, or indices) began and ended."""
    return np.stack([columns.start_ns[which], columns.end_ns[which]], axis=1)


def step_marks(columns: Columns) -> Mask:
    """The steps that torch.profiler marked on the host. (The GPU's mirror of them has another
    category.)"""
    return columns.named(STEP_PREFIX) & columns.of_category("user_annotation", "cpu_op")


def step_events(columns: Columns) -> npt.NDArray[np.intp]:
    """The events of these marks, by their start."""
    marks = np.flatnonzero(step_marks(columns))
    return marks[np.argsort(columns.start_ns[marks], kind="stable")]


def profiler_steps(columns: Columns) -> Intervals:
    return intervals_of(columns, step_marks(columns))


def window_of(intervals: npt.ArrayLike) -> Window:
    """From the first start to the last end. There must be at least one interval."""
    every = as_intervals(intervals)
    return Window(start_ns=int(every[:, 0].min()), end_ns=int(every[:, 1].max()))


def union_ns(intervals: npt.ArrayLike) -> int:
    """Time covered by at least one interval."""
    every = as_intervals(intervals)
    if not len(every):
        return 0
    uncovered = gaps(every)
    return window_of(every).duration_ns - int((uncovered[:, 1] - uncovered[:, 0]).sum())


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Owners:
    """Who owns each moment: from ``start_ns[i]`` to ``start_ns[i + 1]`` it is ``owner[i]``, NOBODY
    in between.

    Shapes [m]. The first stretch begins before all time and is nobody's; the last one is nobody's
    too.
    """

    start_ns: Numbers
    owner: Numbers

    def at(self, moments_ns: Numbers) -> Numbers:
        """Whose each moment is."""
        found: Numbers = self.owner[np.searchsorted(self.start_ns, moments_ns, side="right") - 1]
        return found

    def within(self, intervals: Intervals) -> tuple[Numbers, Numbers]:
        """The stretches inside disjoint intervals: owners and lengths in nanoseconds, of shape [k]
        each."""
        # two at one moment are a stretch of none
        points = np.sort(np.concatenate([self.start_ns, intervals.ravel()]))
        lengths = np.diff(points)
        begun = np.searchsorted(np.sort(intervals[:, 0]), points[:-1], side="right")
        ended = np.searchsorted(np.sort(intervals[:, 1]), points[:-1], side="right")
        inside = begun > ended
        return self.at(points[:-1])[inside], lengths[inside]


def owners(intervals: npt.ArrayLike) -> Owners:
    """Of one thread: every moment belongs to the interval that started last among those that are
    open."""
    every = as_intervals(intervals)
    # Of two that start together the longer one is the outer one.
    order = np.lexsort((-every[:, 1], every[:, 0]))
    order = order[every[order, 0] < every[order, 1]]
    ordered = every[order]
    nested = _parents(ordered)
    found = _of_overlapping(ordered) if nested is None else _of_nested(ordered, *nested)
    numbers = np.append(order, NOBODY)  # so that NOBODY, the last one, stays what it is
    return Owners(start_ns=found.start_ns, owner=numbers[found.owner])


def _parents(ordered: Intervals) -> tuple[Numbers, Numbers] | None:
    """Of properly nested intervals each one's parent (NOBODY where it has none) and depth; None of
    others."""
    starts = ordered[:, 0]
    ends = ordered[:, 1]
    depth = np.arange(len(ordered)) - np.searchsorted(np.sort(ends), starts, side="right")
    parent = np.full(len(ordered), NOBODY, np.int64)
    above = np.flatnonzero(depth == 0)
    for level in range(1, int(depth.max(initial=0)) + 1):
        here = np.flatnonzero(depth == level)
        before = np.searchsorted(above, here) - 1
        if (before < 0).any():
            return None
        parent[here] = above[before]
        above = here
    inner = parent != NOBODY
    if (ends[inner] > ends[parent[inner]]).any():
        return None
    return parent, depth


def _of_nested(ordered: Intervals, parent: Numbers, depth: Numbers) -> Owners:
    """At its start an interval takes over, at its end its parent does."""
    moments = np.concatenate([[-_NEVER], ordered[:, 1], ordered[:, 0]])
    owner = np.concatenate([[NOBODY], parent, np.arange(len(ordered))])
    # Of what happens at one moment the last counts: ends before starts, inner ends first, outer
    # starts first.
    rank = np.concatenate([[-_NEVER], -1 - depth, depth])
    order = np.lexsort((rank, moments))
    moments = moments[order]
    owner = owner[order]
    last = np.append(moments[1:] != moments[:-1], True)
    return Owners(start_ns=moments[last], owner=owner[last])


def _of_overlapping(ordered: Intervals) -> Owners:
    """One after the other, for intervals that are not properly nested."""
    ends: list[int] = ordered[:, 1].tolist()
    starts_ns = [-_NEVER]
    owner = [NOBODY]
    open_now: list[int] = []

    def give(start: int, to: int) -> None:
        if start == starts_ns[-1]:
            owner[-1] = to
        else:
            starts_ns.append(start)
            owner.append(to)

    def close(until: int) -> None:
        """Those that end by then; one whose end had passed while a later one was open leaves with
        that one."""
        while open_now and ends[open_now[-1]] <= until:
            end = max(ends[open_now.pop()], starts_ns[-1])
            while open_now and ends[open_now[-1]] <= end:
                open_now.pop()
            give(end, open_now[-1] if open_now else NOBODY)

    for index, start in enumerate(ordered[:, 0].tolist()):
        close(start)
        open_now.append(index)
        give(start, index)
    close(_NEVER)
    return Owners(start_ns=np.array(starts_ns, np.int64), owner=np.array(owner, np.int64))


def self_times_ns(intervals: npt.ArrayLike) -> Numbers:
    """Of one thread: each interval's time without what ran inside it, in the order given, of shape
    [n].

    For properly nested intervals that is duration minus children; for intervals that merely overlap
    (Kineto rounds, and mixes clocks) each moment is still assigned once, as ``owners`` says, so
    that it always adds up to union_ns.
    """
    every = as_intervals(intervals)
    found = owners(every)
    own = np.zeros(len(every), np.int64)
    owned = found.owner[:-1] != NOBODY
    np.add.at(own, found.owner[:-1][owned], np.diff(found.start_ns)[owned])
    return own


def gaps(intervals: npt.ArrayLike) -> Intervals:
    """The stretches between the first start and the last end that no interval covers."""
    every = as_intervals(intervals)
    if not len(every):
        return every
    ordered = every[np.argsort(every[:, 0], kind="stable")]
    reached = np.maximum.accumulate(ordered[:, 1])
    found = np.stack([reached[:-1], ordered[1:, 0]], axis=1)
    return found[found[:, 0] < found[:, 1]]
