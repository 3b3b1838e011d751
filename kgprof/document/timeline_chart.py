"""One step of each run as lanes of its events, with its tables: a picture that needs no script, and
the events themselves, from which the script draws one to zoom into.

Lengths along the time are shares of the width, so that the same drawing fits a telephone and a
wall; a kind of event is also a height. Where events are too short for the width, the picture shows
how busy each stretch was, and no order.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from kgprof import model as m
from kgprof.document.breakdown import NAMES, Legend, broken_down, legend, legend_of
from kgprof.document.escaping import one_line, zipped
from kgprof.document.limits import Limits, anchor, kept
from kgprof.document.plot import Shape
from kgprof.document.quantity import (
    count,
    figure,
    milliseconds,
    of_width,
    or_dash,
    percent,
    share_of,
    span,
)
from kgprof.document.run_parts import name_of, run_part
from kgprof.document.table import (
    Block,
    Cell,
    Cells,
    Drawn,
    Facts,
    Fold,
    Shown,
    plain,
    small,
)
from kgprof.wording import plural, short_name

_ROW = 38  # pixels from lane to lane: a line of text above the blocks
_BLOCKS_AT, _BLOCK = 17, 16  # where in a row they begin, and how high the highest are
_AXIS = 18
_NAME, _LABEL = 72, 400  # characters of an event's name, and of a lane's
_TICKS = 4
ACROSS = 3000  # units of the picture's width
# events of a lane that are drawn one by one; of more those that are shorter than a cell are not
_EXACT = 150
_CELLS = 250  # of the width
_STEPS = 50_000  # of the window, at least: how exactly the page knows a time
_DENSE = (
    "In lanes of many events, a bar is as high as the share of its stretch that short events took, "
    "in the colour of what took most."
)

# What is no kind of kernel: its class is t-CLASS, how high it is drawn, what a reader calls it,
# what it stands for.
_MARKS: dict[str, tuple[str, int, str, str]] = {
    "span": ("span", _BLOCK, "user span", "a record_function of the workload's"),
    "region": ("region", _BLOCK, "compiled region", "one call of a compiled function"),
    "wait": ("wait", _BLOCK, "GPU sync", "cudaStreamSynchronize and similar calls"),
    "launch": ("launch", 11, "launch", "a CUDA call that starts GPU work"),
    "call": ("call", 6, "other CUDA call", "a CUDA call that starts no GPU work"),
    "idle-host": (
        "idle-host",
        _BLOCK,
        "idle: waiting for the CPU",
        "the next launch had not been issued",
    ),
    "idle-launch": (
        "idle-launch",
        11,
        "idle: launch latency",
        "the next launch was issued but had not started",
    ),
    "idle-unknown": (
        "idle-other",
        6,
        "idle: unknown",
        "the trace does not hold the call that ended it",
    ),
    "idle-edge": (
        "idle-other",
        6,
        "idle: edge",
        "before the first or after the last GPU work of the trace",
    ),
}
_CONTENTS = {
    "spans": "user spans",
    "regions": "compiled regions",
    "operators": "operators",
    "calls": "CUDA calls",
    "kernels": "kernels",
    "copies": "copies and fills",
    "idle": "idle",
}
_ROLES = {"calls": 1, "kernels": 2, "copies": 2, "idle": 3}  # of a lane, for the script
# What each part of the CPU time is, for readers who do not know torch's inside.
_MEANINGS = {
    "Dynamo cache lookup (guards)": "finding the compiled code that fits this call",
    "prologue": "Dynamo's bytecode and AOTAutograd's wrapper before the compiled code",
    "wrapper of the compiled code": (
        "Inductor's Python around the kernels, and replaying CUDA graphs"
    ),
    "generated kernels": "on a CPU the C++ kernels; on a GPU the launchers of the Triton kernels",
    "operators": "on a CPU dispatch and the work itself; on a GPU ATen's dispatch",
    "autograd engine": "its own time between the operators of the backward pass",
    "launch calls": "CUDA calls that start GPU work",
    "GPU syncs": "cudaStreamSynchronize and similar calls",
    "other CUDA calls": "CUDA calls that start no GPU work",
    "user spans": "a record_function's time that nothing inside it accounts for",
    "kgprof overhead": "kgprof's",
    "unexplained": "Python, and what the trace does not name",
}


def known(runs: m.Runs) -> bool:
    """Whether there is anything to say about a step of any of them."""
    return any(
        isinstance(kernels.timeline, m.StepTimeline) or isinstance(kernels.host_time, m.HostTime)
        for _, _, kernels in broken_down(runs)
    )


def step_folds(runs: m.Runs, limits: Limits) -> Iterator[Fold]:
    """The drawing of each run's step, what its host did, and how far ahead of the device that
    was."""
    drawn = kept(runs, limits.timelines)
    for index, run, kernels in broken_down(runs):
        step = kernels.timeline
        caption = "no timeline"
        if isinstance(step, m.StepTimeline):
            caption = (
                f"{step.name}, {milliseconds(step.duration_us)} ms of CPU "
                f"time: the median of {plural(step.steps, 'traced step')}, "
                f"{kernels.measured_in.upper()} pass"
            )
        at = ""
        if index in drawn:
            at = anchor(index)
        yield run_part(index, run, _blocks(run, kernels, at), caption, "step")


def _blocks(run: m.RunReport, kernels: m.KernelBreakdown, at: str) -> Iterator[Block]:
    """``at``: the run's anchor; empty where the page has no room for its drawing."""
    name = name_of(run.key)
    step = kernels.timeline
    if isinstance(step, m.Skipped):
        yield f"No timeline: {step.reason}."
    elif not any(lane.name for lane in step.lanes):
        yield "No timeline: this report has no single events."
    elif at:
        yield from _drawn(step, name, at)
    else:
        yield "No timeline: left out of this page to keep it small; report.json holds it."
    yield from _host(kernels, name)
    queue = kernels.queue
    if isinstance(queue, m.LaunchQueue):
        yield _queue(queue)
    elif kernels.device == "cuda":
        yield f"Launch delay and queue depth are not known: {queue.reason}."


# ---------------------------------------------------------------- the drawing


def _drawn(step: m.StepTimeline, name: str, at: str) -> Iterator[Block]:
    """Legend, lanes, what a reader of them must know, and the lanes as a table."""
    present = {_mark(lane, step.kinds[kind]) for lane in step.lanes for kind in lane.kind}
    marks = legend_of(
        "t", *((kind, *words) for mark, (kind, _, *words) in _MARKS.items() if mark in present)
    )
    yield Legend((*legend(present.intersection(m.KernelKind)), *marks.entries))
    labels = _labels(step)
    yield _lanes(step, labels, at)
    yield from (f"{note[:1].upper()}{note[1:]}." for note in _notes(step))
    rows = [
        (
            label,
            figure(lane.busy_us),
            percent(share_of(lane.busy_us, step.window_us)),
            count(len(lane.name) + lane.left_out + lane.covered),
            count(lane.left_out),
        )
        for label, lane in zip(labels, step.lanes, strict=True)
    ]
    headings = ("lane", "\N{MICRO SIGN}s", "of what is drawn", "events", "of these left out")
    yield Fold("The lanes as a table", (plain(f"Lanes of {name}", headings, rows),))


def _labels(step: m.StepTimeline) -> list[str]:
    labels = []
    for lane in step.lanes:
        owner = lane.owner
        if lane.content != "idle":
            owner += ":"
        content = _CONTENTS.get(lane.content, lane.content)
        labels.append(one_line(f"{owner} {content}", _LABEL))
    return labels


def _busy(lane: m.Lane, step: m.StepTimeline) -> str:
    share = percent(share_of(lane.busy_us, step.window_us))
    return f"{milliseconds(lane.busy_us)} ms, {share}"


def _lanes(step: m.StepTimeline, labels: Sequence[str], at: str) -> Drawn:
    window_us = step.window_us or 1.0
    rows = []
    busy = []
    for number, (label, lane) in enumerate(zip(labels, step.lanes, strict=True)):
        top = _ROW * number
        row = Shown(
            label=label,
            busy=_busy(lane, step),
            label_y=top + 12,
            top=top + _BLOCKS_AT,
            line_y=top + _BLOCKS_AT + _BLOCK,  # the ground that the blocks stand on
            shapes=[*_shapes(step, lane)],
        )
        rows.append(row)
        busy.append(f"{label} {milliseconds(lane.busy_us)} ms")
    inner = [
        (of_width(place / _TICKS), figure(window_us * place / _TICKS), "middle")
        for place in range(1, _TICKS)
    ]
    first = (of_width(0), "0", "start")
    last = (of_width(1), f"{figure(window_us)} \N{MICRO SIGN}s", "end")
    lanes = f"{milliseconds(window_us)} ms in {count(len(rows))} lanes"
    shown = Shown(
        at=at,
        across=ACROSS,
        description=f"Timeline of {lanes}: {', '.join(busy)}",
        height=_ROW * len(rows) + _AXIS,
        axis_y=_ROW * len(rows) + 2,
        rows=rows,
        ticks=(first, *inner, last),
        step_end="",
        note="",
    )
    if step.duration_us < window_us:  # where the step ends on the CPU
        shown["step_end"] = of_width(step.duration_us / window_us)
    if any(len(lane.name) > _EXACT for lane in step.lanes):
        # how to read the picture where it does not show single events; the script's does
        shown["note"] = _DENSE
    return Drawn("lanes", shown)


def _shapes(step: m.StepTimeline, lane: m.Lane) -> Iterator[Shape]:
    """The lane's events, one shape a kind: each at its place, or for each cell how much of it the
    short ones took, in the colour of the kind that took most."""
    window_ns = step.window_us * 1000 or 1.0
    cell_ns = 0.0
    if len(lane.name) > _EXACT:
        cell_ns = window_ns / _CELLS
    paths: defaultdict[int, list[str]] = defaultdict(list)
    cells: defaultdict[int, defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
    totals: defaultdict[int, list[int]] = defaultdict(list)
    for kind, start, length in zip(lane.kind, lane.start_ns, lane.duration_ns, strict=True):
        totals[kind].append(length)
        if length < cell_ns:
            cells[int(start / cell_ns)][kind] += length
        else:
            high = _style(lane, step.kinds[kind])[1]
            paths[kind].append(
                _rectangle(ACROSS * start / window_ns, ACROSS * length / window_ns, high)
            )
    for cell, of in cells.items():
        high = max(1, round(_BLOCK * min(1.0, sum(of.values()) / cell_ns)))
        most = max(of, key=lambda kind: (of[kind], -kind))
        paths[most].insert(0, _rectangle(ACROSS * cell / _CELLS, ACROSS / _CELLS, high))
    for kind in sorted(paths):
        style, _, called = _style(lane, step.kinds[kind])
        took = f"{milliseconds(sum(totals[kind]) / 1000)} ms"
        yield Shape(
            style,
            "".join(paths[kind]),
            f"{called}: {plural(len(totals[kind]), 'event')}, {took}",
        )


def _rectangle(x: float, width: float, high: int) -> str:
    return f"M{x:.4g} {_BLOCK - high}h{max(width, 0.1):.4g}v{high}H{x:.4g}z"


def _style(lane: m.Lane, kind: str) -> tuple[str, int, str]:
    """Class, height and name of a kind."""
    if mark := _MARKS.get(_mark(lane, kind)):
        return f"t-{mark[0]}", mark[1], mark[2]
    if kind not in NAMES:
        kind = m.KernelKind.OTHER.value
    return f"k-{kind}", _BLOCK, NAMES[kind]


def _mark(lane: m.Lane, kind: str) -> str:
    if lane.content == "idle":
        return f"idle-{kind}"
    return kind


def events(runs: m.Runs, limits: Limits) -> str:
    """Of the runs whose step is drawn, for the script: JSON by anchor, packed as the Profile is.
    Times are whole numbers of ``unit`` nanoseconds, starts count from the end of the event before,
    calls from the call before."""
    drawn = kept(runs, limits.timelines)
    coded = {}
    for index, _, kernels in broken_down(runs):
        step = kernels.timeline
        if index in drawn and isinstance(step, m.StepTimeline) and step.names:
            coded[anchor(index)] = _coded(step)
    if not coded:
        return ""
    return zipped(msgspec.json.encode(coded))


def _coded(step: m.StepTimeline) -> list[object]:
    """Idle time begins and ends where a call starts, or where what it launched starts or ends. The
    idle lane holds places in the sorted list of these moments, and in ``links`` the moments that
    are missing from the lanes before."""
    window_ns = step.window_us * 1000
    unit = 10 ** max(0, math.floor(math.log10(max(1.0, window_ns / _STEPS))))
    styles: dict[tuple[str, int, str], int] = {}
    lanes = []
    moments = set[int]()
    for lane, label in zip(step.lanes, _labels(step), strict=True):
        times = zip(lane.start_ns, lane.duration_ns, strict=True)
        starts = [round(start / unit) for start in lane.start_ns]
        ends = [round((start + length) / unit) for start, length in times]
        links = [call - before for call, before in zip(lane.call, (0, *lane.call), strict=False)]
        role = _ROLES.get(lane.content, 0)
        if role == 3:
            links = sorted({*starts, *ends} - moments)
            places = {moment: place for place, moment in enumerate(sorted({*moments, *links}))}
            starts = [places[start] for start in starts]
            ends = [places[end] for end in ends]
        elif role:
            moments.update(starts)
        if role == 2:
            moments.update(ends)
        kinds = [
            styles.setdefault(_style(lane, step.kinds[kind]), len(styles)) for kind in lane.kind
        ]
        gaps = [start - before for start, before in zip(starts, (0, *ends), strict=False)]
        lengths = [end - start for start, end in zip(starts, ends, strict=True)]
        packed = map(_letters, (lane.name, kinds, gaps, lengths))
        lanes.append((label, _busy(lane, step), role, *packed, links))
    names = [short_name(one_line(name, 20_000), _NAME) for name in step.names]
    duration = round(step.duration_us * 1000 / unit)
    return [unit, round(window_ns / unit), duration, names, [*styles], lanes]


def _letters(numbers: Iterable[int]) -> str:
    """One character each, from "]" on and without surrogates: packed, they are shorter than
    digits."""
    return "".join(_letter(93 + min(max(0, number), 10**6)) for number in numbers)


def _letter(code: int) -> str:
    if code >= 0xD800:
        code += 0x800
    return chr(code)


def _notes(step: m.StepTimeline) -> Iterator[str]:
    unit = "\N{MICRO SIGN}s"
    if lost := sum(lane.left_out for lane in step.lanes):
        us = figure(sum(lane.left_out_us for lane in step.lanes))
        yield (
            f"{plural(lost, 'event')} of at most {figure(step.left_out_below_us)} {unit} "
            f"each, {us} {unit} in total, left out: the longest ones are here"
        )
    if step.duration_us < step.window_us:
        yield (
            "the dashed line is the end of the step on the CPU; after it the GPU "
            "finishes what the step launched"
        )
    if step.from_other_steps:
        yield f"{count(step.from_other_steps)} GPU events were not launched by this step"
    if step.after_the_window:
        late = plural(step.after_the_window, "GPU event")
        yield f"{late} that the step launched began later than is drawn"
    if covered := sum(lane.covered for lane in step.lanes):
        yield f"{plural(covered, 'GPU event')} ran under others of their stream and are not drawn"
    if step.lanes_left_out:
        us = figure(step.left_out_us)
        yield f"{plural(step.lanes_left_out, 'lane')} with {us} {unit} in total omitted"


# ---------------------------------------------------------------- the CPU's part


def _host(kernels: m.KernelBreakdown, name: str) -> Iterator[Block]:
    host = kernels.host_time
    if isinstance(host, m.Skipped):
        yield f"CPU time by activity is unknown: {host.reason}."
        return
    rows: list[Cells] = []
    for part in host.parts:
        meaning = _MEANINGS.get(part.name, "")
        between = span(figure(part.minimum_us), figure(part.maximum_us))
        rows.append(
            (
                Cell(
                    part.name,
                    below=small(meaning, style="detail"),
                ),
                figure(part.mean_us),
                percent(share_of(part.mean_us, host.mean_us)),
                f"{figure(part.median_us)} ({between})",
                or_dash(part.calls, figure, ""),
            )
        )
    rows.append(("the whole step", figure(host.mean_us), percent(1.0), "", ""))
    unit = "\N{MICRO SIGN}s"
    headings = (
        "activity",
        f"mean {unit}/step",
        "of the step",
        f"median {unit} (min to max)",
        "calls/step",
    )
    yield plain(f"CPU time per step of {name}", headings, rows, style="")
    yield (
        f"Self time on the main thread over {plural(host.steps, 'step')} of the "
        f"{kernels.measured_in.upper()} pass. The profiler slows every activity, those with many "
        "calls most."
    )
    if host.other_threads_us:
        time = f"{figure(host.other_threads_us)} {unit} per step"
        yield f"During {time} of the unexplained time another thread ran operators or CUDA calls."


def _queue(queue: m.LaunchQueue) -> Facts:
    spread = (
        f"p10 to p90 {span(figure(queue.p10_us), figure(queue.p90_us))}, at most "
        f"{figure(queue.maximum_us)}"
    )
    delay = (
        f"median {figure(queue.median_us)} \N{MICRO SIGN}s ({spread}): from a call's return to the "
        "start of the first thing that it launched, so waiting for the work before it is in it. "
        f"{count(queue.calls)} calls; {count(queue.before_return)} of them had not returned when "
        "it started, and count as 0"
    )
    depth = (
        f"mean {figure(queue.mean_depth)}, at most {count(queue.maximum_depth)} operations "
        f"launched and not begun, over the window; none in {percent(queue.empty_share)} of it. A "
        "CUDA graph's come all at once"
    )
    return Facts((("launch delay", delay), ("queue depth", depth)))
