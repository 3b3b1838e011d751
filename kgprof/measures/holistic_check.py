"""HTA's figures of a trace held against ours: by HTA's own definitions, so that what differs is a fault of one of us.

Its causes of idle time are of each stream by itself and ours are of the whole device (kgprof.measures.idle), so they
are computed here a second time as HTA defines them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

import numpy as np

from kgprof import model as m
from kgprof.measures import kernels
from kgprof.reading import launches, timeline
from kgprof.reading.evidence import RunEvidence
from kgprof.reading.kineto import NONE, Columns
from kgprof.reading.launches import Indices, Launched
from kgprof.reading.timeline import NOBODY

TOLERANCE_PERCENT = 0.5
KERNELS_SHOWN = 12  # of those that differ by more
US, OPERATIONS, PERCENT, BANDWIDTH = "us", "operations", "%", "GB/s"
# HTA's words. Its documentation calls the threshold nanoseconds; it is held against microseconds.
HOST_WAIT, KERNEL_WAIT, OTHER = "host_wait", "kernel_wait", "other"
KERNEL_WAIT_NS = 30_000
COMMUNICATION = "nccl"
# The calls that HTA's queue length looks for (TraceSymbolTable.get_runtime_launch_events_query, CUDA's).
QUEUED_BY = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cudaMemcpyAsync", "cudaMemsetAsync")
NO_SIZES = "kgprof does not read the sizes of copies"

_IDLE = {
    HOST_WAIT: "gaps on a stream whose next work was launched after what ran before it had ended",
    KERNEL_WAIT: "launched before that, and the gap is shorter than 30 us",
    OTHER: "the other gaps on a stream",
}


def in_trace(run: RunEvidence) -> m.HolisticCheck | m.Skipped:
    """HTA's figures of TRACE beside ours; Skipped without a GPU, a trace or an answer of HTA."""
    if run.whole.device != "cuda":
        return m.Skipped(reason="a CPU run: HTA analyses what ran on a GPU")
    answer, ours = run.record.holistic, run.once(kernels.shown)
    if isinstance(run.record.trace, m.Skipped):
        return run.record.trace
    if isinstance(answer, m.Skipped):
        return answer
    if isinstance(ours, m.Skipped):
        return ours
    trace = run.trace(m.PassName.TRACE)
    return trace if isinstance(trace, m.Skipped) else check(answer, ours, trace.columns)


def check(answer: m.Holistic, ours: m.KernelBreakdown, columns: Columns) -> m.HolisticCheck:
    """``answer`` is about one trace, ``ours`` and ``columns`` are of the same one."""
    return _Check(answer, ours, columns).done()


class _Check:
    def __init__(self, answer: m.Holistic, ours: m.KernelBreakdown, columns: Columns) -> None:
        self._answer, self._ours, self._columns = answer, ours, columns
        self._rank: m.HolisticRank = answer.ranks[0]
        self._work: Launched = launches.launched(columns)

    def done(self) -> m.HolisticCheck:
        kernels, differing = self._kernels()
        return m.HolisticCheck(
            versions=self._answer.versions,
            calls=self._answer.calls,
            tolerance_percent=TOLERANCE_PERCENT,
            figures=(*self._totals(), *self._idle_causes(), *self._queues(), *self._overlap(), *self._bandwidths()),
            kernels=kernels,
            kernels_differing=len(differing),
            differing=differing[:KERNELS_SHOWN],
        )

    # ---- the rows

    def _totals(self) -> Iterator[m.HolisticFigure]:
        rank, ours = self._rank, self._ours
        kernels = self._given("get_gpu_kernel_breakdown", sum(rank.kernels.values()) if rank.kernels else None)
        yield figure("kernels, copies and fills", US, ours.total_us, kernels, "each with its whole duration, summed")
        yield figure("device busy", US, ours.busy_us, _less(rank.window_us, rank.idle_us), "at least one of them runs")
        idle = ours.idle
        between = ours.idle_us - idle.edges_us if isinstance(idle, m.DeviceIdle) else idle
        yield figure("device idle", US, between, rank.idle_us, "between the first and the last of them")
        computing = self._union_us(~self._columns.named(COMMUNICATION))
        without = "at least one kernel runs that is no communication; HTA leaves out names with Sync in them"
        yield figure("device computing", US, computing, rank.compute_us, without)

    def _idle_causes(self) -> Iterator[m.HolisticFigure]:
        ours, theirs = idle_causes_us(self._columns, self._work), defaultdict[str, float](float)
        for of_stream in self._rank.idle_causes:
            theirs[of_stream.cause] += of_stream.total_us
        for cause, meaning in _IDLE.items():
            given = self._given("get_idle_time_breakdown", theirs[cause] if theirs else None)
            yield figure(f"idle: {cause}", US, ours[cause], given, meaning)

    def _queues(self) -> Iterator[m.HolisticFigure]:
        ours, unknown = longest_queues(self._columns, self._work), self._unqueued()
        note = "launched and not yet begun, at most"
        if unknown and self._rank.queue_length:
            note += f"; HTA leaves out {unknown:,} of {len(self._work.events):,}, whose launch calls it does not know"
        for stream, longest in ours.items():
            given = self._given("get_queue_length_summary", self._rank.queue_length.get(str(stream)))
            yield figure(f"longest queue, stream {stream}", OPERATIONS, float(longest), given, note)

    def _overlap(self) -> Iterator[m.HolisticFigure]:
        communication = self._columns.named(COMMUNICATION)
        both, alone = self._union_us(communication | ~communication), self._union_us(communication)
        if not alone:
            return
        ours = 100 * (alone + self._union_us(~communication) - both) / alone
        note = "time of communication in which something is computed as well"
        yield figure("communication overlapped", PERCENT, ours, self._rank.overlap_percent, note)

    def _bandwidths(self) -> Iterator[m.HolisticFigure]:
        for copy, mean in self._rank.bandwidth_gb_per_s.items():
            yield figure(f"bandwidth, {copy}", BANDWIDTH, m.Skipped(reason=NO_SIZES), mean, "mean over the copies")

    def _kernels(self) -> tuple[int, tuple[m.HolisticFigure, ...]]:
        """How many names were compared, and those that differ: the largest first, by our time or HTA's."""
        if not self._rank.kernels:
            return 0, ()
        ours: dict[str, float] = defaultdict(float)
        for row in self._ours.rows:
            ours[row.name] += row.total_us
        names = dict.fromkeys((*ours, *self._rank.kernels))
        rows = [figure(name, US, ours.get(name, 0.0), self._rank.kernels.get(name, 0.0)) for name in names]
        return len(rows), tuple(sorted((row for row in rows if row.differs), key=_weight))

    # ---- what they are made of

    def _given(self, call: str, value: float | None) -> float | m.Skipped:
        """HTA's figure; where there is none, why the call that gives it did not."""
        if value is not None:
            return value
        made = next((made for made in self._answer.calls if made.name == call), None)
        if made is None:
            return m.Skipped(reason=f"{call} was not called")
        if made.outcome == "ok":
            return m.Skipped(reason=f"{call} does not hold it")
        return m.Skipped(reason=f"{call}: {made.outcome}" + (f": {made.reason}" if made.reason else ""))

    def _union_us(self, which: launches.Mask) -> float:
        return (
            timeline.union_ns(timeline.intervals_of(self._columns, which & self._columns.of_category("kernel"))) / 1000
        )

    def _unqueued(self) -> int:
        known = np.array([name in QUEUED_BY for name in self._columns.names], np.bool_)
        calls = self._work.calls
        return int(((calls == NOBODY) | ~known[self._columns.name[calls]]).sum())


def idle_causes_us(columns: Columns, work: Launched) -> Mapping[str, float]:
    """HTA's three causes, of each stream's gaps by themselves, added up over the streams."""
    found = dict.fromkeys(_IDLE, 0)
    for _, events, calls in _streams(columns, work):
        ended = np.maximum.accumulate(columns.end_ns[events])[:-1]
        gap_ns = np.maximum(0, columns.start_ns[events][1:] - ended)
        late = (calls[1:] != NOBODY) & (columns.start_ns[calls[1:]] > ended)
        short = ~late & (gap_ns < KERNEL_WAIT_NS)
        found[HOST_WAIT] += int(gap_ns[late].sum())
        found[KERNEL_WAIT] += int(gap_ns[short].sum())
        found[OTHER] += int(gap_ns[~late & ~short].sum())
    return {cause: total_ns / 1000 for cause, total_ns in found.items()}


def longest_queues(columns: Columns, work: Launched) -> Mapping[int, int]:
    """By stream: how many operations had been launched and had not begun, at most; of those whose call is known."""
    longest = {}
    for stream, events, calls in _streams(columns, work):
        known = calls != NOBODY
        moments = np.concatenate([columns.start_ns[calls[known]], columns.start_ns[events[known]]])
        change = np.repeat([1, -1], int(known.sum()))
        order = np.lexsort((-change, moments))  # of a launch and a start at one moment, the launch came first
        longest[stream] = int(np.cumsum(change[order]).max(initial=0))
    return longest


def _streams(columns: Columns, work: Launched) -> Iterator[tuple[int, Indices, Indices]]:
    """Stream by stream: its events, in the order of their start, and their calls."""
    of_each = columns.stream[work.events]
    for stream in sorted(set(of_each.tolist()) - {NONE}):
        yield stream, work.events[of_each == stream], work.calls[of_each == stream]


def figure(name: str, unit: str, ours: float | m.Skipped, hta: float | m.Skipped, note: str = "") -> m.HolisticFigure:
    difference = _difference_percent(ours, hta)
    if isinstance(difference, m.Skipped):  # of two numbers where ours is 0: no percentage says how far off that is
        differs = not isinstance(ours, m.Skipped) and not isinstance(hta, m.Skipped)
    else:
        differs = abs(difference) > TOLERANCE_PERCENT
    return m.HolisticFigure(
        name=name, unit=unit, ours=ours, hta=hta, difference_percent=difference, differs=differs, note=note
    )


def _difference_percent(ours: float | m.Skipped, hta: float | m.Skipped) -> float | m.Skipped:
    if isinstance(ours, m.Skipped):
        return ours
    if isinstance(hta, m.Skipped):
        return hta
    if ours == hta:
        return 0.0
    return 100 * (hta - ours) / ours if ours else m.Skipped(reason="ours is 0")


def _less(whole: float | m.Skipped, part: float | m.Skipped) -> float | m.Skipped:
    if isinstance(whole, m.Skipped):
        return whole
    return part if isinstance(part, m.Skipped) else whole - part


def _weight(row: m.HolisticFigure) -> tuple[float, str]:
    sides = [side for side in (row.ours, row.hta) if not isinstance(side, m.Skipped)]
    return -max(sides, default=0.0), row.name
