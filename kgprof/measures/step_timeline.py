"""One step as lanes of events: each thread's spans, compiled regions, operators and CUDA calls,
each stream's kernels and copies, and why the device was idle.

The step shown is the median one by its duration on the CPU. Where the device's work outlives it,
the window reaches to the end of what the step launched, and at most as far again as the step is
long. Everything is cut at the window's edges; what other steps did in it is drawn where it was, and
their device work counted.

A step may hold a hundred thousand events: the longest MAX_EVENTS are kept, each lane says how many
it lost and how long they took.

How much memory torch's allocator held over one step: from the allocations and frees that a trace
recorded with ``profile_memory`` holds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kgprof import model as m
from kgprof.measures.collectives import GENERATED_CODE_PREFIX, REGION_PREFIX
from kgprof.measures.idle import idle_stretches, length_ns_of
from kgprof.measures.kernel_kinds import Kinds
from kgprof.reading import timeline
from kgprof.reading.evidence import RunEvidence
from kgprof.reading.kineto import NONE, Columns, Trace
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

# of a step, and stretches in which the device was idle: 9 to 15 KB of a page
MAX_EVENTS = 4000
MAX_IDLE = 1500
MAX_LANES = 16
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


@dataclass(frozen=True, eq=False, slots=True)
class _Events:
    """What a lane holds: disjoint, in the order of their start, none of them empty."""

    owner: str
    content: str
    intervals: Intervals
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    rows: Indices  # in the trace; NOBODY of what no event stands for
    covered: int = 0

    @property
    def busy_ns(self) -> int:
        return length_ns_of(self.intervals)


def median_step(columns: Columns) -> tuple[int, int, int] | m.Skipped:
    """The event of the median step by its duration on the host, its number in the order of the
    trace from 1, and how many steps there are."""
    marks = timeline.step_events(columns)
    if not len(marks):
        return m.Skipped("the trace marks no steps")
    chosen = int(np.argsort(columns.duration_ns[marks], kind="stable")[(len(marks) - 1) // 2])
    if not columns.duration_ns[marks[chosen]]:
        return m.Skipped("the median step of the trace took no time")
    return int(marks[chosen]), chosen + 1, len(marks)


@m.skippable
def step_timeline(columns: Columns, work: Launched, rules: Kinds) -> m.StepTimeline | m.Skipped:
    """Of the median step. ``work``: what ran on the device, as ``launches.launched`` says."""
    mark, number, steps = m.known(median_step(columns))
    step = Window(start_ns=int(columns.start_ns[mark]), end_ns=int(columns.end_ns[mark]))
    # Which of the device's events were launched in the step; of some the call is not known.
    asked_ns = np.where(work.calls == NOBODY, step.start_ns - 1, columns.start_ns[work.calls])
    asked: Mask = (asked_ns >= step.start_ns) & (asked_ns < step.end_ns)
    until = int(columns.end_ns[work.events[asked]].max(initial=step.end_ns))
    window = Window(start_ns=step.start_ns, end_ns=min(until, step.end_ns + step.duration_ns))
    ran = window.touches(timeline.intervals_of(columns, work.events))
    lanes = [
        *_host_lanes(columns, work, window, rules),
        *_device_lanes(columns, work, window, rules),
    ]
    busiest = sorted(lanes, key=lambda lane: -lane.busy_ns)[:MAX_LANES]
    shown = [lane for lane in lanes if lane in busiest]
    names, kinds, drawn, longest_lost_ns = _columns(shown, work, window)
    return m.StepTimeline(
        name=columns.name_of(mark),
        number=number,
        steps=steps,
        duration_us=step.duration_ns / 1000,
        window_us=window.duration_ns / 1000,
        names=names,
        kinds=kinds,
        lanes=drawn,
        lanes_left_out=len(lanes) - len(shown),
        left_out_us=sum(lane.busy_ns for lane in lanes if lane not in shown) / 1000,
        left_out_below_us=longest_lost_ns / 1000,
        from_other_steps=int((ran & ~asked).sum()),
        after_the_window=int((asked & ~ran).sum()),
    )


def _host_lanes(columns: Columns, work: Launched, step: Window, rules: Kinds) -> Iterator[_Events]:
    """Thread by thread, in the order of their first event in the file."""
    operators = columns.of_category("cpu_op")
    calls = columns.of_category(*LAUNCH_CATEGORIES)
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
        owner = f"thread {columns.threads[thread][1]}"
        for content, wanted in contents:
            which = np.flatnonzero(mine & wanted)
            kinds = [content.removesuffix("s")] * len(which)
            if content == OPERATORS:
                names = columns.name[which].tolist()
                kinds = [rules.of_operator(columns.names[name]).kind.value for name in names]
            elif content == CALLS:
                of_calls = np.where(launching[which], "launch", "call")
                of_calls[waiting[which]] = "wait"
                kinds = of_calls.tolist()
            yield from _lane(columns, which, kinds, step, owner, content)


def _device_lanes(
    columns: Columns, work: Launched, step: Window, rules: Kinds
) -> Iterator[_Events]:
    """Stream by stream, by number and device; then why nothing ran."""
    if not len(work.events):
        return
    here = work.events[step.touches(timeline.intervals_of(columns, work.events))]
    is_kernel = columns.of_category("kernel")[here]
    names, device = devices(columns, here)
    streams = columns.stream[here].tolist()
    for stream, number in sorted(set(zip(streams, device.tolist(), strict=True))):
        of_stream = (columns.stream[here] == stream) & (device == number)
        owner = f"stream {stream}"
        if len(names) > 1:
            owner += f" of device {names[number]}"
        for content, wanted in ((KERNELS, is_kernel), (COPIES, ~is_kernel)):
            which = here[of_stream & wanted]
            pairs = zip(columns.name[which].tolist(), columns.category[which].tolist(), strict=True)
            kinds = [
                rules.of_device_event(columns.names[n], columns.categories[c]).kind.value
                for n, c in pairs
            ]
            yield from _lane(columns, which, kinds, step, owner, content)
    yield from _idle(columns, work, step)


def _idle(columns: Columns, work: Launched, step: Window) -> Iterator[_Events]:
    """Causes are those of the whole trace: what ends a gap may begin after the step."""
    whole = step.around(timeline.intervals_of(columns, work.events))
    idle = idle_stretches(columns, work, whole)
    # The operator or span in which the host asked for what ended each gap; empty where it was in
    # none.
    around = innermost(columns, columns.of_category("cpu_op", "user_annotation"), idle.asked_by)
    asking = []
    for span in around.tolist():
        name = ""
        if span != NOBODY:
            name = columns.name_of(span)
        asking.append(name)
    causes = {"host": idle.host, "launch": idle.launch, "unknown": idle.unknown, "edge": idle.edges}
    intervals = step.clip(np.concatenate([*causes.values()]))
    kinds = [cause for cause, stretches in causes.items() for _ in range(len(stretches))]
    names = [*asking, *asking, *[""] * (len(idle.unknown) + len(idle.edges))]
    order = np.argsort(intervals[:, 0], kind="stable")
    order = order[intervals[order, 0] < intervals[order, 1]]
    if len(order):
        yield _Events(
            "device",
            IDLE,
            intervals=intervals[order],
            names=tuple(names[i] for i in order.tolist()),
            kinds=tuple(kinds[i] for i in order.tolist()),
            rows=np.full(len(order), NOBODY, np.intp),
        )


def _lane(
    columns: Columns, which: Indices, kinds: Sequence[str], step: Window, owner: str, content: str
) -> Iterator[_Events]:
    """Of these events what of each no earlier one covers: the outermost ones of a thread, and all
    of a stream's."""
    clipped = step.clip(timeline.intervals_of(columns, which))
    starts = clipped[:, 0]
    ends = clipped[:, 1]
    order = np.lexsort((-ends, starts))
    order = order[starts[order] < ends[order]]
    if not len(order):
        return
    starts = starts[order]
    ends = ends[order]
    reached = np.concatenate([[step.start_ns], np.maximum.accumulate(ends)[:-1]])
    starts = np.maximum(starts, reached)
    seen = starts < ends
    covered = 0
    if content in (KERNELS, COPIES):
        covered = int((~seen).sum())
    places = order[seen]
    yield _Events(
        owner,
        content,
        intervals=np.stack([starts[seen], ends[seen]], axis=1),
        names=tuple(columns.name_of(event) for event in which[places].tolist()),
        kinds=tuple(kinds[place] for place in places.tolist()),
        rows=which[places],
        covered=covered,
    )


def _columns(
    lanes: Sequence[_Events], work: Launched, window: Window
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[m.Lane, ...], int]:
    """Names and kinds, the lanes that hold their numbers, and how long the longest event is that
    none of them holds: of events that are as long as each other, those of the first lane and the
    first ones of a lane stay."""
    lengths = [lane.intervals[:, 1] - lane.intervals[:, 0] for lane in lanes]
    every = np.concatenate([np.zeros(0, np.int64), *lengths])
    idle = np.array(
        [lane.content == IDLE for lane, each in zip(lanes, lengths, strict=True) for _ in each],
        np.bool_,
    )
    stays = np.zeros(len(every), np.bool_)
    for some, most in ((np.flatnonzero(~idle), MAX_EVENTS), (np.flatnonzero(idle), MAX_IDLE)):
        stays[some[np.argsort(-every[some], kind="stable")[:most]]] = True
    ends = np.cumsum([len(each) for each in lengths])
    kept = [np.flatnonzero(part) for part in np.split(stays, ends)[:-1]]
    number: dict[int, int] = {}
    for lane, at in zip(lanes, kept, strict=True):
        if lane.content == CALLS:
            number |= {row: len(number) + i for i, row in enumerate(lane.rows[at].tolist())}
    call_of = dict(zip(work.events.tolist(), work.calls.tolist(), strict=True))
    names: dict[str, int] = {}
    kinds: dict[str, int] = {}
    made = []
    for lane, at, length in zip(lanes, kept, lengths, strict=True):
        call: list[int] = []
        if lane.content in (KERNELS, COPIES):
            call = [number.get(call_of[row], -1) for row in lane.rows[at].tolist()]
        made.append(
            m.Lane(
                lane.owner,
                lane.content,
                lane.busy_ns / 1000,
                lane.covered,
                name=tuple(names.setdefault(lane.names[i], len(names)) for i in at.tolist()),
                kind=tuple(kinds.setdefault(lane.kinds[i], len(kinds)) for i in at.tolist()),
                start_ns=tuple((lane.intervals[at, 0] - window.start_ns).tolist()),
                duration_ns=tuple(length[at].tolist()),
                call=tuple(call),
                left_out=len(length) - len(at),
                left_out_us=(lane.busy_ns - int(length[at].sum())) / 1000,
            )
        )
    return tuple(names), tuple(kinds), tuple(made), int(every[~stays].max(initial=0))


_ENTRIES = 240  # of the curve
NOT_RECORDED = m.Skipped("its traces hold no allocations (recorded without profile_memory)")


@m.skippable
def shown(run: RunEvidence) -> m.MemoryCurve | m.Skipped:
    """From STACK, whose times are no times of the workload's anyway; or from a trace that was taken
    in."""
    for name in (m.PassName.STACK, m.PassName.TRACE):
        trace = run.trace(name)
        if isinstance(trace, Trace) and len(trace.columns.memory.at_ns):
            return memory_curve(trace.columns, measured_in=name)
    stack = run.trace(m.PassName.STACK)
    if not isinstance(stack, Trace) and not run.whole.recording.header.plan.trace_files:
        return m.Skipped(f"allocations are recorded by STACK: {stack.reason}")
    return NOT_RECORDED


@m.skippable
def memory_curve(columns: Columns, *, measured_in: m.PassName) -> m.MemoryCurve | m.Skipped:
    """Of the median step, on the device with the most allocations in it; a GPU's before the
    CPU's."""
    mark, _, steps = m.known(median_step(columns))
    start_ns = int(columns.start_ns[mark])
    end_ns = int(columns.end_ns[mark])
    points = columns.memory
    inside = (points.at_ns >= start_ns) & (points.at_ns < end_ns)
    devices = points.device[inside]
    if not len(devices):
        return m.Skipped("nothing was allocated or freed in its median traced step")
    gpus = devices[devices != NONE]
    device = NONE
    name = "cpu"
    if len(gpus):
        device = int(np.bincount(gpus).argmax())
        name = f"cuda:{device}"
    mine = np.flatnonzero(points.device == device)
    mine = mine[np.argsort(points.at_ns[mine], kind="stable")]
    at = points.at_ns[mine]
    held = points.allocated_bytes[mine]
    first = int(np.searchsorted(at, start_ns))
    end = int(np.searchsorted(at, end_ns))
    before = int(held[first] - points.change_bytes[mine[first]])
    if first:
        before = int(held[first - 1])
    within = np.arange(first, end)
    # Of each of equal stretches of time the least and the most; of few all.
    if len(within) > _ENTRIES:
        stretch = (at[within] - start_ns) * (_ENTRIES // 2) // (end_ns - start_ns)
        parts = np.split(within, np.flatnonzero(np.diff(stretch)) + 1)
        within = np.unique(
            [(part[held[part].argmin()], part[held[part].argmax()]) for part in parts]
        )
    return m.MemoryCurve(
        device=name,
        measured_in=measured_in,
        step=columns.name_of(mark),
        steps=steps,
        duration_us=(end_ns - start_ns) / 1000,
        events=end - first,
        before_bytes=before,
        peak_bytes=max(before, int(held[first:end].max())),
        after_bytes=int(held[end - 1]),
        at_us=tuple(((at[within] - start_ns) / 1000).tolist()),
        allocated_bytes=tuple(held[within].tolist()),
    )
