"""From a device event back to the host: the call that launched it, and the spans that call stood
in.

The trace's own annotations on the GPU show the innermost ``record_function`` only, which for
compiled code is Inductor's; so every device event is followed by its correlation id to the runtime
or driver call, and that call's thread and moment say which spans were open.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kgprof import model as m
from kgprof.reading import timeline
from kgprof.reading.evidence import RunEvidence
from kgprof.reading.kineto import NONE, Columns
from kgprof.reading.timeline import NOBODY

OWN_SPANS = "kgprof: "  # record_function names that are the recorder's, not the workload's
# of a program that ended while it was traced
AFTER_STEPS = f"{OWN_SPANS}after the last complete step"
WAITS = (
    *(f"cuda{what}Synchronize" for what in ("Stream", "Device", "Event")),
    *(f"cu{what}Synchronize" for what in ("Stream", "Ctx", "Event")),
    *(f"hip{what}Synchronize" for what in ("Stream", "Device", "Event")),
)
DEVICE_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")
GRAPH_LAUNCH_PREFIXES = ("cudaGraphLaunch", "cuGraphLaunch", "hipGraphLaunch")
# Every call through which work reaches the device; one cudaGraphLaunch stands for a whole graph of
# kernels.
LAUNCH_PREFIXES = (
    "cudaLaunchKernel",
    "cuLaunchKernel",
    "cudaLaunchCooperativeKernel",
    "hipLaunchKernel",
    "hipExtLaunchKernel",
    "hipModuleLaunchKernel",
    "hipExtModuleLaunchKernel",
    "hipLaunchCooperativeKernel",
    "urEnqueueKernelLaunch",
    *GRAPH_LAUNCH_PREFIXES,
)
# Calls of ROCm's runtime have CUDA's category.
LAUNCH_CATEGORIES = ("cuda_runtime", "cuda_driver", "xpu_runtime")

Indices = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Launched:
    """Device events in the order of their start, and the host call of each: indices, of shape [n]
    both."""

    events: Indices
    calls: Indices  # NOBODY where the trace holds none


def launched(columns: Columns) -> Launched:
    """Every kernel, copy and fill, but for what was launched after AFTER_STEPS began."""
    events = np.flatnonzero(columns.of_category(*DEVICE_CATEGORIES))
    events = events[np.argsort(columns.start_ns[events], kind="stable")]
    calls = _calls(columns, columns.correlation[events])
    over_ns = columns.start_ns[
        columns.named(AFTER_STEPS) & columns.of_category("user_annotation", "cpu_op")
    ]
    if len(over_ns):
        belongs = (calls == NOBODY) | (columns.start_ns[calls] < over_ns.min())
        events = events[belongs]
        calls = calls[belongs]
    return Launched(events=events, calls=calls)


def launched_in_trace(run: RunEvidence) -> Launched | m.Skipped:
    """What TRACE put on the device; Skipped where there is no TRACE, or its file cannot be read."""
    trace = run.trace(m.PassName.TRACE)
    return trace if isinstance(trace, m.Skipped) else launched(trace.columns)


def devices(
    columns: Columns, events: Indices
) -> tuple[tuple[int | str, ...], npt.NDArray[np.int64]]:
    """The devices that these ran on, and of each event the place of its own: a trace's process. Two
    have a stream 7."""
    places: dict[int | str, int] = {}
    of_row = np.zeros(len(columns.threads), np.int64)
    for row in threads_of(columns, events):
        of_row[row] = places.setdefault(columns.threads[row][0], len(places))
    return tuple(places), of_row[columns.thread[events]]


def _calls(columns: Columns, wanted: npt.NDArray[np.int64]) -> Indices:
    """The runtime or driver call with each correlation id."""
    calls = np.flatnonzero(columns.of_category(*LAUNCH_CATEGORIES) & (columns.correlation != NONE))
    if not len(calls):
        return np.full(len(wanted), NOBODY, np.intp)
    # The first of two calls with one id is the one that the other was made by.
    ids, first = np.unique(columns.correlation[calls], return_index=True)
    at = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    found: Indices = np.where((ids[at] == wanted) & (wanted != NONE), calls[first[at]], NOBODY)
    return found


def innermost(columns: Columns, spans: Mask, calls: Indices) -> Indices:
    """Of ``spans`` the innermost one that was open on a call's thread when it was made; NOBODY
    where none was."""
    found = np.full(len(calls), NOBODY, np.intp)
    known = calls != NOBODY
    for thread in threads_of(columns, calls[known]):
        here = known & (columns.thread[calls] == thread)
        mine = np.flatnonzero(spans & (columns.thread == thread))
        owner = timeline.owners(timeline.intervals_of(columns, mine)).at(
            columns.start_ns[calls[here]]
        )
        found[here] = np.where(owner == NOBODY, NOBODY, mine[owner]) if len(mine) else NOBODY
    return found


def alike(columns: Columns, events: Indices, *, by_shape: bool = False) -> Iterator[Indices]:
    """Places in ``events`` of those with one name and category (and one shape of launch), in the
    order given."""
    key = columns.name[events].astype(np.int64) * len(columns.categories) + columns.category[events]
    if by_shape:
        key = key * (len(columns.shapes) + 1) + columns.shape[events] - NONE
    order = np.argsort(key, kind="stable")
    if len(order):
        yield from np.split(order, np.flatnonzero(np.diff(key[order])) + 1)


def outermost(columns: Columns, events: Mask) -> Indices:
    """Those of ``events`` that lie in no other one of their thread, in the order of the file."""
    found = np.zeros(len(columns), np.bool_)
    indices = np.flatnonzero(events)
    for thread in threads_of(columns, indices):
        mine = indices[columns.thread[indices] == thread]
        # an outer one before its first inner
        mine = mine[np.lexsort((-columns.end_ns[mine], columns.start_ns[mine]))]
        reached = np.maximum.accumulate(columns.end_ns[mine])
        found[mine] = np.append(True, columns.start_ns[mine][1:] >= reached[:-1])
    return np.flatnonzero(found)


def threads_of(columns: Columns, calls: Indices) -> list[int]:
    """The threads that made these calls, or the rows that these events stand in, by their index."""
    used = np.zeros(len(columns.threads), np.bool_)
    used[columns.thread[calls]] = True
    return [int(thread) for thread in np.flatnonzero(used)]


def waits(
    columns: Columns, steps: timeline.Intervals, *, but_inside: Mask | None = None
) -> npt.NDArray[np.int64]:
    """Calls in which the host waits for the device, on whatever thread, in each of ``steps``; not
    the recorder's own, nor those with which ``torch.cuda.graph`` begins a capture. Shape [steps].

    ``but_inside``: operators; a call of which one of them is the innermost is left out.
    """
    runtime = columns.of_category(*LAUNCH_CATEGORIES)
    calls = np.flatnonzero(columns.named(*WAITS) & runtime)
    calls = calls[np.argsort(columns.start_ns[calls], kind="stable")]
    own = innermost(columns, columns.named(OWN_SPANS), calls) != NOBODY
    if but_inside is not None:
        operators = innermost(columns, columns.of_category("cpu_op"), calls)
        own |= (operators != NOBODY) & but_inside[operators]
    for capture in np.flatnonzero(columns.named("cudaStreamBeginCapture") & runtime).tolist():
        before = (columns.thread[calls] == columns.thread[capture]) & (
            columns.start_ns[calls] < columns.start_ns[capture]
        )
        own[np.flatnonzero(before)[-1:]] = True
    starts = columns.start_ns[calls]
    begun = np.searchsorted(np.sort(steps[:, 0]), starts, side="right")
    ended = np.searchsorted(np.sort(steps[:, 1]), starts, side="right")
    return np.bincount(begun[(begun > ended) & ~own] - 1, minlength=len(steps))


def torch_works_in(columns: Columns, steps: timeline.Intervals) -> Mask:
    """Which of ``steps`` hold a compilation, an autotuning or a recording of a CUDA graph: torch
    marks these itself, with the names of its own timers. Shape [steps]."""
    timers = np.array([name.endswith(m.TIMED_BY_TORCH) for name in columns.names], np.bool_)
    own = timers[columns.name] & columns.of_category("cpu_op", "user_annotation")
    own |= columns.named("cudaStreamBeginCapture") & columns.of_category(*LAUNCH_CATEGORIES)
    starts = np.sort(columns.start_ns[own])
    before = np.searchsorted(starts, steps[:, 0], side="left")
    until = np.searchsorted(starts, steps[:, 1], side="left")
    found: Mask = until > before
    return found


def usual_steps(columns: Columns) -> Indices:
    """The marks of the longest row of steps in which torch only runs what it has made before."""
    marks = timeline.step_events(columns)
    others = np.flatnonzero(torch_works_in(columns, timeline.intervals_of(columns, marks)))
    edges = np.concatenate([[-1], others, [len(marks)]])
    longest = int(np.diff(edges).argmax())
    return marks[edges[longest] + 1 : edges[longest + 1]]


def queue(columns: Columns, work: Launched, window: timeline.Window) -> m.LaunchQueue | m.Skipped:
    """Of the device events whose call is known, whatever stream they run on."""
    known = work.calls != NOBODY
    if not known.any():
        return m.Skipped("the trace has no call that launched GPU work")
    asked_ns = columns.start_ns[work.calls[known]]
    began_ns = columns.start_ns[work.events[known]]
    # ``events`` are in the order of their start
    calls, first = np.unique(work.calls[known], return_index=True)
    after_ns = began_ns[first] - columns.end_ns[calls]
    delays_us = np.sort(np.maximum(0, after_ns) / 1000)
    # To the last bit what np.percentile says, which imports numpy.ma: as much time as some reports
    # take to analyse.
    place = (len(delays_us) - 1) * np.array([0.5, 0.1, 0.9])
    below = place.astype(np.intp)
    beyond = place % 1
    low = delays_us[below]
    high = delays_us[np.minimum(below + 1, len(delays_us) - 1)]
    between = np.where(
        beyond < 0.5, low + (high - low) * beyond, high - (high - low) * (1 - beyond)
    )
    median_us, p10_us, p90_us = between.tolist()
    # How many operations were waiting, and for how long, stretch by stretch of the window.
    # clocks of two devices: none has begun before it was asked for
    began_ns = np.maximum(asked_ns, began_ns)
    moments = np.concatenate([asked_ns, began_ns, [window.start_ns, window.end_ns]])
    change = np.repeat([1, -1, 0], [len(asked_ns), len(began_ns), 2])
    # of a launch and a start at one moment, the launch came first
    order = np.lexsort((-change, moments))
    depths = np.cumsum(change[order])[:-1]
    lengths_ns = np.diff(np.clip(moments[order], window.start_ns, window.end_ns))
    return m.LaunchQueue(
        calls=len(calls),
        median_us=median_us,
        p10_us=p10_us,
        p90_us=p90_us,
        maximum_us=float(delays_us[-1]),
        before_return=int((after_ns < 0).sum()),
        mean_depth=float(depths @ lengths_ns) / window.duration_ns if window.duration_ns else 0.0,
        maximum_depth=int(depths.max(initial=0)),
        empty_share=int(lengths_ns[depths == 0].sum()) / window.duration_ns
        if window.duration_ns
        else 1.0,
    )
