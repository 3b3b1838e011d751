"""One step as lanes of rectangles: each thread's spans, compiled regions, operators and CUDA calls, each stream's
kernels and copies, and why the device was idle.

The step is the median one, by its duration on the host, so that what is seen is neither the slowest nor the luckiest.
Where the device's work outlives it, the window reaches to the end of what the step launched, and at most as far again
as the step is long. Everything is cut at the window's edges; what other steps did in it is drawn where it was, and
their device work counted.

A step may hold a hundred thousand events. The window is divided into cells of one length; events shorter than a cell
that begin in the same one and follow each other are pushed together, one rectangle for each kind, as long as all its
events. So a lane's rectangles add up to what the lane was busy, those of one colour to what that kind took, and none is
further from its place than a cell.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from kgprof import model as m
from kgprof.measures.attribution import GENERATED_CODE_PREFIX, REGION_PREFIX
from kgprof.measures.idle import idle_stretches
from kgprof.measures.kernel_kinds import Kinds
from kgprof.reading import timeline
from kgprof.reading.kineto import Columns
from kgprof.reading.launches import (
    LAUNCH_CATEGORIES,
    OWN_SPANS,
    WAITS,
    Indices,
    Launched,
    Mask,
    devices,
    innermost,
    threads_of,
)
from kgprof.reading.timeline import NOBODY, STEP_PREFIX, Intervals, Window

MAX_BLOCKS = 180  # of a step: what a page of several runs can hold, and about what an eye can tell apart
MAX_LANES = 16
# Of a window; the first with which MAX_BLOCKS is kept, else the last, which sixteen lanes of many kinds may exceed.
CELLS = (1000, 400, 200, 100, 70, 50, 35, 25, 18, 12, 8, 5, 3, 2)
# Frames around the operators: the lane of operators shows what is inside them.
AROUND_OPERATORS = (
    STEP_PREFIX,
    REGION_PREFIX,
    GENERATED_CODE_PREFIX,
    OWN_SPANS,
    "CompiledFunction",
    "autograd::engine::",
    "inductor_wrapper_call",
)
SPANS, REGIONS, OPERATORS, CALLS = "spans", "regions", "operators", "calls"
KERNELS, COPIES, IDLE = "kernels", "copies", "idle"

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class _Events:
    """What a lane holds: disjoint, in the order of their start, none of them empty."""

    owner: str
    content: str
    intervals: Intervals
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    covered: int = 0

    @property
    def busy_ns(self) -> int:
        return int((self.intervals[:, 1] - self.intervals[:, 0]).sum())


def step_timeline(columns: Columns, work: Launched, rules: Kinds) -> m.StepTimeline | m.Skipped:
    """Of the median step. ``work``: what ran on the device, as ``launches.launched`` says."""
    marks = np.flatnonzero(timeline.step_marks(columns))
    if not len(marks):
        return m.Skipped(reason="the trace marks no steps")
    marks = marks[np.argsort(columns.start_ns[marks], kind="stable")]
    chosen = int(np.argsort(columns.duration_ns[marks], kind="stable")[(len(marks) - 1) // 2])
    mark = int(marks[chosen])
    step = Window(start_ns=int(columns.start_ns[mark]), end_ns=int(columns.end_ns[mark]))
    if not step.duration_ns:
        return m.Skipped(reason="the median step of the trace took no time")
    # Which of the device's events were launched in the step; of some the call is not known.
    asked_ns = np.where(work.calls == NOBODY, step.start_ns - 1, columns.start_ns[work.calls])
    asked: Mask = (asked_ns >= step.start_ns) & (asked_ns < step.end_ns)
    until = int(columns.end_ns[work.events[asked]].max(initial=step.end_ns))
    window = Window(start_ns=step.start_ns, end_ns=min(until, step.end_ns + step.duration_ns))
    ran = window.touches(timeline.intervals_of(columns, work.events))
    lanes = [*_host_lanes(columns, work, window, rules), *_device_lanes(columns, work, window, rules)]
    kept = sorted(range(len(lanes)), key=lambda index: (-lanes[index].busy_ns, index))[:MAX_LANES]
    shown = [lane for index, lane in enumerate(lanes) if index in kept]
    drawn, cell_ns = _drawn(shown, window)
    merged = [block for lane in drawn for block in lane.blocks if block.events > 1]
    return m.StepTimeline(
        name=columns.names[columns.name[mark]],
        number=chosen + 1,
        steps=len(marks),
        duration_us=step.duration_ns / 1000,
        window_us=window.duration_ns / 1000,
        lanes=tuple(drawn),
        lanes_left_out=len(lanes) - len(shown),
        left_out_us=(sum(lane.busy_ns for lane in lanes) - sum(lane.busy_ns for lane in shown)) / 1000,
        merged_blocks=len(merged),
        merged_events=sum(block.events for block in merged),
        merged_below_us=cell_ns / 1000,
        from_other_steps=int((ran & ~asked).sum()),
        after_the_window=int((asked & ~ran).sum()),
    )


def _host_lanes(columns: Columns, work: Launched, step: Window, rules: Kinds) -> Iterator[_Events]:
    """Thread by thread, in the order of their first event in the file."""
    operators, calls = columns.of_category("cpu_op"), columns.of_category(*LAUNCH_CATEGORIES)
    regions = columns.named(REGION_PREFIX)
    # As attribution.users_spans: an annotation that neither torch nor the recorder made.
    spans = columns.of_category("user_annotation") & ~columns.named(*AROUND_OPERATORS)
    contents = (
        (SPANS, spans),
        (REGIONS, regions & (operators | columns.of_category("user_annotation"))),
        (OPERATORS, operators & ~columns.named(*AROUND_OPERATORS)),
        (CALLS, calls),
    )
    launching = np.zeros(len(columns), np.bool_)
    launching[work.calls[work.calls != NOBODY]] = True
    waiting = columns.named(*WAITS)
    here = step.touches(timeline.intervals_of(columns, np.ones(len(columns), np.bool_)))
    for thread in threads_of(columns, np.flatnonzero(here & (operators | calls | spans))):
        mine = here & (columns.thread == thread)
        for content, wanted in contents:
            which = np.flatnonzero(mine & wanted)
            kinds = [content.removesuffix("s")] * len(which)
            if content == OPERATORS:
                kinds = [rules.of_operator(columns.names[name]).kind.value for name in columns.name[which].tolist()]
            elif content == CALLS:
                kinds = np.where(waiting[which], "wait", np.where(launching[which], "launch", "call")).tolist()
            yield from _lane(columns, which, kinds, step, f"thread {columns.threads[thread][1]}", content)


def _device_lanes(columns: Columns, work: Launched, step: Window, rules: Kinds) -> Iterator[_Events]:
    """Stream by stream, by number and device; then why nothing ran."""
    if not len(work.events):
        return
    here = work.events[step.touches(timeline.intervals_of(columns, work.events))]
    is_kernel = columns.of_category("kernel")[here]
    names, device = devices(columns, here)
    for stream, number in sorted(set(zip(columns.stream[here].tolist(), device.tolist(), strict=True))):
        of_stream = (columns.stream[here] == stream) & (device == number)
        owner = f"stream {stream}" if len(names) == 1 else f"stream {stream} of device {names[number]}"
        for content, wanted in ((KERNELS, is_kernel), (COPIES, ~is_kernel)):
            which = here[of_stream & wanted]
            pairs = zip(columns.name[which].tolist(), columns.category[which].tolist(), strict=True)
            kinds = [rules.of_device_event(columns.names[n], columns.categories[c]).kind.value for n, c in pairs]
            yield from _lane(columns, which, kinds, step, owner, content)
    yield from _idle(columns, work, step)


def _idle(columns: Columns, work: Launched, step: Window) -> Iterator[_Events]:
    """Causes are those of the whole trace: what ends a gap may begin after the step."""
    whole = step.around(timeline.intervals_of(columns, work.events))
    idle = idle_stretches(columns, work, whole)
    # The operator or span in which the host asked for what ended each gap; empty where it was in none.
    around = innermost(columns, columns.of_category("cpu_op", "user_annotation"), idle.asked_by)
    asking = ["" if one == NOBODY else columns.names[columns.name[one]] for one in around.tolist()]
    causes = {"host": idle.host, "launch": idle.launch, "unknown": idle.unknown, "edge": idle.edges}
    intervals = step.clip(np.concatenate([*causes.values()]))
    kinds = [cause for cause, stretches in causes.items() for _ in range(len(stretches))]
    names = [*asking, *asking, *[""] * (len(idle.unknown) + len(idle.edges))]
    order = [i for i in np.argsort(intervals[:, 0], kind="stable").tolist() if intervals[i, 0] < intervals[i, 1]]
    if order:
        yield _Events(
            owner="device",
            content=IDLE,
            intervals=intervals[order],
            names=tuple(names[i] for i in order),
            kinds=tuple(kinds[i] for i in order),
        )


def _lane(
    columns: Columns, which: Indices, kinds: Sequence[str], step: Window, owner: str, content: str
) -> Iterator[_Events]:
    """Of these events what of each no earlier one covers: the outermost ones of a thread, and all of a stream's."""
    clipped = step.clip(timeline.intervals_of(columns, which))
    order = np.lexsort((-clipped[:, 1], clipped[:, 0]))
    order = order[clipped[order, 0] < clipped[order, 1]]
    if not len(order):
        return
    starts, ends = clipped[order, 0], clipped[order, 1]
    reached = np.concatenate([[step.start_ns], np.maximum.accumulate(ends)[:-1]])
    starts = np.maximum(starts, reached)
    seen = starts < ends
    yield _Events(
        owner=owner,
        content=content,
        intervals=np.stack([starts[seen], ends[seen]], axis=1),
        names=tuple(columns.names[columns.name[which[i]]] for i in order[seen].tolist()),
        kinds=tuple(kinds[i] for i in order[seen].tolist()),
        covered=int((~seen).sum()) if content in (KERNELS, COPIES) else 0,
    )


def _drawn(lanes: Sequence[_Events], window: Window) -> tuple[list[m.Lane], float]:
    """With the smallest cells that keep to MAX_BLOCKS, and their length in nanoseconds."""
    for cells in CELLS:
        cell_ns = window.duration_ns / cells
        runs = [_runs(lane, window, cell_ns) for lane in lanes]
        blocks = [len(set(zip(of.tolist(), lane.kinds, strict=True))) for lane, of in zip(lanes, runs, strict=True)]
        if sum(blocks) <= MAX_BLOCKS:
            break
    drawn = [
        m.Lane(
            owner=lane.owner,
            content=lane.content,
            busy_us=lane.busy_ns / 1000,
            covered=lane.covered,
            blocks=tuple(
                block
                for first, end in pairwise((*np.flatnonzero(np.diff(of, prepend=-1)).tolist(), len(of)))
                for block in _blocks(lane, first, end, window)
            ),
        )
        for lane, of in zip(lanes, runs, strict=True)
    ]
    return drawn, cell_ns


def _runs(lane: _Events, window: Window, cell_ns: float) -> Numbers:
    """Which events are pushed together: those of one number, counted from 0, of shape [n]."""
    starts, ends = lane.intervals[:, 0], lane.intervals[:, 1]
    cell = np.floor((starts - window.start_ns) / cell_ns)
    small = (ends - starts) < cell_ns
    joins = small[1:] & small[:-1] & (cell[1:] == cell[:-1])
    return np.concatenate([[0], np.cumsum(~joins)])


def _blocks(lane: _Events, first: int, end: int, window: Window) -> Iterator[m.LaneBlock]:
    """One for each kind, in the order in which the kinds come; each named after its longest event."""
    lengths = (lane.intervals[:, 1] - lane.intervals[:, 0])[first:end].tolist()
    of_kind: dict[str, list[int]] = {}
    for index in range(end - first):
        of_kind.setdefault(lane.kinds[first + index], []).append(index)
    start_ns = int(lane.intervals[first, 0]) - window.start_ns
    for kind, members in of_kind.items():
        length_ns = sum(lengths[index] for index in members)
        yield m.LaneBlock(
            name=lane.names[first + max(members, key=lengths.__getitem__)],
            kind=kind,
            start_us=start_ns / 1000,
            duration_us=length_ns / 1000,
            events=len(members),
        )
        start_ns += length_ns
