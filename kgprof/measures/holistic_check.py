"""HTA's figures of a trace held against ours: by HTA's own definitions, so that what differs is a
fault of one of us.

Its causes of idle time are of each stream by itself and ours are of the whole device
(kgprof.measures.idle), so they are computed here a second time as HTA defines them.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from kgprof import model as m
from kgprof.measures import kernels
from kgprof.reading import launches, timeline
from kgprof.reading.evidence import RunEvidence
from kgprof.reading.kineto import NONE, Columns
from kgprof.reading.launches import Indices, Launched
from kgprof.reading.timeline import NOBODY
from kgprof.wording import clause

TOLERANCE_PERCENT = 0.5
KERNELS_SHOWN = 12  # of those that differ by more
US, OPERATIONS, PERCENT, BANDWIDTH = "us", "operations", "%", "GB/s"
# HTA's words. Its documentation calls the threshold nanoseconds; it is held against microseconds.
HOST_WAIT, KERNEL_WAIT, OTHER = "host_wait", "kernel_wait", "other"
KERNEL_WAIT_NS = 30_000
COMMUNICATION = "nccl"
# The calls that HTA's queue length looks for (TraceSymbolTable.get_runtime_launch_events_query,
# CUDA's).
QUEUED_BY = (
    "cudaLaunchKernel",
    "cudaLaunchKernelExC",
    "cuLaunchKernel",
    "cudaMemcpyAsync",
    "cudaMemsetAsync",
)
OURS_IS_0 = m.Skipped("ours is 0")  # no percentage says how far off it is
NO_SIZES = m.Skipped("kgprof does not read the sizes of copies")

_IDLE = {
    HOST_WAIT: "gaps whose next work was launched after the previous work had ended",
    KERNEL_WAIT: "gaps under 30 µs whose next work had been launched already",
    OTHER: "the other gaps on a stream",
}


@m.skippable
def in_trace(run: RunEvidence) -> m.HolisticCheck | m.Skipped:
    """HTA's figures of TRACE beside ours; Skipped without a GPU, a trace or an answer of HTA."""
    if run.whole.device != "cuda":
        return m.Skipped("a CPU run: HTA analyses what ran on a GPU")
    m.known(run.record.trace)
    answer = m.known(run.record.holistic)
    ours = m.known(run.once(kernels.shown))
    return check(answer, ours, m.known(run.trace()).columns)


def check(answer: m.Holistic, ours: m.KernelBreakdown, columns: Columns) -> m.HolisticCheck:
    """``answer`` is about one trace, ``ours`` and ``columns`` are of the same one."""
    differing: list[tuple[float, str, m.HolisticFigure]] = []
    ours_us: dict[str, float] = {}
    if theirs := answer.ranks[0].kernels:
        ours_us = dict.fromkeys((*(row.name for row in ours.rows), *theirs), 0.0)
        for row in ours.rows:
            ours_us[row.name] += row.total_us
    for name, us in ours_us.items():
        theirs_us = theirs.get(name, 0.0)
        held = figure(name, US, us, theirs_us)
        if held.differs:
            differing.append((-max(us, theirs_us), name, held))
    differing.sort(key=lambda each: each[:2])
    return m.HolisticCheck(
        versions=answer.versions,
        calls=answer.calls,
        tolerance_percent=TOLERANCE_PERCENT,
        figures=tuple(_figures(answer, ours, columns)),
        kernels=len(ours_us),
        kernels_differing=len(differing),
        differing=tuple(held for _, _, held in differing[:KERNELS_SHOWN]),
    )


def _figures(
    answer: m.Holistic, ours: m.KernelBreakdown, columns: Columns
) -> Iterator[m.HolisticFigure]:
    rank = answer.ranks[0]
    work = launches.launched(columns)
    communication = columns.named(COMMUNICATION)

    def given(call: str, value: float | None) -> m.Figure:
        """HTA's figure; where there is none, why the call that gives it did not."""
        if value is not None:
            return value
        made = next((made for made in answer.calls if made.name == call), None)
        if made is None:
            return m.Skipped(f"{call} was not called")
        if made.outcome == "ok":
            return m.Skipped(f"{call} does not hold it")
        return m.Skipped(f"{call}: {made.outcome}{clause(': ', made.reason)}")

    def union_us(which: launches.Mask) -> float:
        kernels = timeline.intervals_of(columns, which & columns.of_category("kernel"))
        return timeline.union_ns(kernels) / 1000

    kernels_us = None
    if rank.kernels:
        kernels_us = sum(rank.kernels.values())
    kernels = given("get_gpu_kernel_breakdown", kernels_us)
    yield figure("kernels, copies and fills", US, ours.total_us, kernels, "sum of their durations")
    busy = _less(rank.window_us, rank.idle_us)
    yield figure("GPU busy", US, ours.busy_us, busy, "at least one of them is running")
    idle = _less(ours.idle_us, _edges_us(ours.idle))
    yield figure("GPU idle", US, idle, rank.idle_us, "between the first and the last of them")
    computing, alone, both = (
        union_us(which) for which in (~communication, communication, communication | ~communication)
    )
    without = "at least one non-communication kernel is running; HTA skips names containing Sync"
    yield figure("GPU computing", US, computing, rank.compute_us, without)

    causes: dict[str, float] = {}
    if rank.idle_causes:
        causes = dict.fromkeys(_IDLE, 0.0)
    for of_stream in rank.idle_causes:
        causes[of_stream.cause] = causes.get(of_stream.cause, 0.0) + of_stream.total_us
    for cause, us in idle_causes_us(columns, work).items():
        theirs_us = given("get_idle_time_breakdown", causes.get(cause))
        yield figure(f"idle: {cause}", US, us, theirs_us, _IDLE[cause])

    queued = columns.called(*QUEUED_BY)[work.calls]
    note = "most operations launched but not started"
    unknown = int(((work.calls == NOBODY) | ~queued).sum())
    if unknown and rank.queue_length:
        note += (
            f"; HTA skips {unknown:,} of {len(work.events):,} with launch calls it does "
            "not recognise"
        )
    for stream, longest in longest_queues(columns, work).items():
        length = given("get_queue_length_summary", rank.queue_length.get(str(stream)))
        yield figure(f"longest queue, stream {stream}", OPERATIONS, float(longest), length, note)
    if alone:
        note = "communication time that overlaps computation"
        share = 100 * (alone + computing - both) / alone
        yield figure("communication overlapped", PERCENT, share, rank.overlap_percent, note)
    for copy, mean in rank.bandwidth_gb_per_s.items():
        yield figure(f"bandwidth, {copy}", BANDWIDTH, NO_SIZES, mean, "mean over the copies")


@m.skippable
def _less(more: m.Figure, less: m.Figure) -> float:
    return m.known(more) - m.known(less)


@m.skippable
def _edges_us(idle: m.DeviceIdle | m.Skipped) -> float:
    return m.known(idle).edges_us


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
    """By stream: how many operations had been launched and had not begun, at most; of those whose
    call is known."""
    longest = {}
    for stream, events, calls in _streams(columns, work):
        known = calls != NOBODY
        moments = np.concatenate([columns.start_ns[calls[known]], columns.start_ns[events[known]]])
        change = np.repeat([1, -1], int(known.sum()))
        # of a launch and a start at one moment, the launch came first
        order = np.lexsort((-change, moments))
        longest[stream] = int(np.cumsum(change[order]).max(initial=0))
    return longest


def _streams(columns: Columns, work: Launched) -> Iterator[tuple[int, Indices, Indices]]:
    """Stream by stream: its events, in the order of their start, and their calls."""
    of_each = columns.stream[work.events]
    for stream in sorted(set(of_each.tolist()) - {NONE}):
        yield stream, work.events[of_each == stream], work.calls[of_each == stream]


def figure(name: str, unit: str, ours: m.Figure, hta: m.Figure, note: str = "") -> m.HolisticFigure:
    percent = _difference_percent(ours, hta)
    differs = percent is OURS_IS_0
    if isinstance(percent, float):
        differs = abs(percent) > TOLERANCE_PERCENT
    return m.HolisticFigure(name, unit, ours, hta, percent, differs, note)


@m.skippable
def _difference_percent(ours: m.Figure, hta: m.Figure) -> m.Figure:
    mine = m.known(ours)
    more = m.known(hta) - mine
    if not more:
        return 0.0
    if not mine:
        return OURS_IS_0
    return 100 * more / mine
