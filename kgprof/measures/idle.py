"""Why the device had nothing to do: each gap is cut at the moment when the host asked for what came
next.

    device  ████ kernel 1 ████                          ████ kernel 2 ████
    host                        ──────── [launch of 2]
                               |  host   |    launch    |

Before that call the device waited for the host, and what the host did then is named by the
innermost span that was open on its thread; from the call on it waited for the launch to arrive.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kgprof import model as m
from kgprof.reading import launches, timeline
from kgprof.reading.kineto import Columns
from kgprof.reading.launches import Indices, Launched, Mask
from kgprof.reading.timeline import NOBODY, STEP_PREFIX, Intervals, Window

# python_function: of a trace that was recorded with_stack.
HOST_CATEGORIES = ("cpu_op", "user_annotation", *launches.LAUNCH_CATEGORIES, "python_function")
_READS = ("aten::_local_scalar_dense", "aten::item", "aten::is_nonzero")
BETWEEN_SPANS = "(outside any traced operation)"  # Python that nothing in the trace names
_OPERATOR = "aten::"
# A launch takes microseconds; that of a kernel whose code is not loaded yet, or the first of a
# process, takes milliseconds.
LOADING_NS = 1_000_000
LONG_NS = 200_000  # a view or an empty tensor takes less: such an operator computes on the CPU
IN_A_STEP = "(Python between traced operations)"  # likewise; each step's mark has a name of its own
# Annotations that torch 2.11 to 2.13 make.
_OF_TORCH = (
    m.LOADER_PREFIX,
    "## Call",
    "Torch-Compiled Region",
    "DataParallel.",
    "DistributedDataParallel.",
    "nccl:",
    "c10d::",
    "gloo:",
)


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Idle:
    """The stretches in which nothing ran on the device, by cause; disjoint, of shape [n, 2]
    each."""

    host: Intervals
    launch: Intervals
    unknown: Intervals
    edges: Intervals
    gaps: int
    asked_by: Indices  # of each stretch of ``host`` the call that it waited for
    # Of each stretch of ``host`` and ``launch``: it lies between two copies from pageable memory.
    between_copies: Mask


def idle_stretches(columns: Columns, launched: Launched, window: Window) -> Idle:
    """Of a window in which something ran on the device."""
    intervals = window.clip(timeline.intervals_of(columns, launched.events))
    gaps = timeline.gaps(intervals)
    ended_by = np.searchsorted(intervals[:, 0], gaps[:, 1])
    calls = launched.calls[ended_by]
    known = calls != NOBODY
    copies = columns.named(m.PAGEABLE)[launched.events]
    asked_ns = np.clip(columns.start_ns[calls[known]], gaps[known, 0], gaps[known, 1])
    work = timeline.window_of(intervals)
    edges = [(window.start_ns, work.start_ns), (work.end_ns, window.end_ns)]
    return Idle(
        host=np.stack([gaps[known, 0], asked_ns], axis=1),
        launch=np.stack([asked_ns, gaps[known, 1]], axis=1),
        unknown=gaps[~known],
        edges=timeline.as_intervals(edges),
        gaps=len(gaps),
        asked_by=calls[known],
        between_copies=(copies[ended_by] & copies[ended_by - 1])[known],
    )


def device_idle(columns: Columns, launched: Launched, window: Window) -> m.DeviceIdle:
    """Every nanosecond of the window in which no kernel, copy or fill ran, under one of four
    causes."""
    idle = idle_stretches(columns, launched, window)
    causes = (idle.host, idle.launch, idle.unknown, idle.edges)
    spent_ns = [length_ns_of(stretches) for stretches in causes]
    host_us, launch_us, unknown_us, edges_us = (spent / 1000 for spent in spent_ns)
    loading = _loading(columns, idle)
    return m.DeviceIdle(
        sum(spent_ns) / 1000,
        host_us,
        launch_us,
        unknown_us,
        edges_us,
        idle.gaps,
        _host_spans(columns, idle),
        copy_launch_us=length_ns_of(idle.launch[idle.between_copies]) / 1000,
        loading_us=length_ns_of(idle.launch[loading]) / 1000,
        loading_calls=len(np.unique(idle.asked_by[loading])),
    )


def _loading(columns: Columns, idle: Idle) -> Mask:
    """Of each stretch of ``launch``: its call took so long that it did more than launch."""
    launching = columns.named(*launches.LAUNCH_PREFIXES)[idle.asked_by]
    return launching & (columns.duration_ns[idle.asked_by] >= LOADING_NS)


def length_ns_of(stretches: Intervals) -> int:
    return int((stretches[:, 1] - stretches[:, 0]).sum())


def _host_spans(columns: Columns, idle: Idle) -> tuple[m.HostSpan, ...]:
    """What the launching threads did while the device waited for them, by the innermost span's
    name; largest first. All that a DataLoader calls counts as the DataLoader's: it makes a batch,
    and launches nothing. What the program has a name for is Python, outside of the operators in it.
    A read without a call of CUDA's in it is one of a tensor on the CPU, and so is a long operator;
    nothing but these is named between two copies from pageable memory."""
    on_host = columns.of_category(*HOST_CATEGORIES)
    cuda_calls = columns.of_category(*launches.LAUNCH_CATEGORIES)
    loaders = columns.named(m.LOADER_PREFIX)
    reads = columns.named(*_READS)
    long = columns.named(_OPERATOR) & (columns.duration_ns >= LONG_NS)
    # by name; of operators on the CPU; then what reads a tensor there, what is in no span, and what
    # is between copies
    number = len(columns.names)
    spent_ns = np.zeros(2 * number + 3, np.int64)
    read_on_cpu = 2 * number
    for thread in launches.threads_of(columns, idle.asked_by):
        mine = np.flatnonzero(on_host & (columns.thread == thread))
        in_loader = launches.innermost(columns, loaders, mine) != NOBODY
        mine = mine[loaders[mine] | ~in_loader]
        owners = timeline.owners(timeline.intervals_of(columns, mine))
        here = columns.thread[idle.asked_by] == thread
        calls_ns = np.sort(columns.start_ns[cuda_calls & (columns.thread == thread)])
        begun = np.searchsorted(calls_ns, columns.start_ns[mine])
        calls_none = begun == np.searchsorted(calls_ns, columns.end_ns[mine])
        names = columns.name[mine] + number * (long[mine] & calls_none)
        names = np.where(reads[mine] & calls_none, read_on_cpu, names)
        names = np.append(names, read_on_cpu + 1)  # NOBODY takes the last one
        named = np.where((names >= number) & (names < read_on_cpu), names, read_on_cpu + 2)
        for between, of in ((~idle.between_copies, names), (idle.between_copies, named)):
            owner, length_ns = owners.within(idle.host[here & between])
            np.add.at(spent_ns, of[owner], length_ns)
    totals_ns: Counter[tuple[str, bool]] = Counter()
    every = (*_named(columns), *columns.names, m.READS_ON_CPU, BETWEEN_SPANS, m.BETWEEN_COPIES)
    for at, (name, length) in enumerate(zip(every, spent_ns.tolist(), strict=True)):
        totals_ns[name, number <= at < 2 * number] += length
    spans = [
        m.HostSpan(name, length / 1000, on_cpu)
        for (name, on_cpu), length in totals_ns.items()
        if length
    ]
    return tuple(sorted(spans, key=lambda span: (-span.total_us, span.name)))


def _named(columns: Columns) -> Iterator[str]:
    """Give each name of the trace, or that it is Python inside of what the program calls so."""
    own = columns.of_category("user_annotation") & ~columns.named(*_OF_TORCH)
    names = {*columns.name[own].tolist()}
    for at, name in enumerate(columns.names):
        if name.startswith(STEP_PREFIX):
            yield IN_A_STEP
        elif at in names:
            yield f"{IN_A_STEP} in {name}"
        else:
            yield name
