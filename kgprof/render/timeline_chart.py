"""One step of each run as an SVG of lanes, with its tables: what it shows is read without a script, or colours.

Lengths along the time are per cent of the width, so that the same drawing fits a telephone and a wall; a block's kind
is also its height, and hovering says what it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kgprof import model as m
from kgprof.render import breakdown
from kgprof.render.chart import LETTERS, broken_down, of_width
from kgprof.render.limits import Limits, anchor, run_name
from kgprof.render.quantity import count, figure, milliseconds, percent, span
from kgprof.render.table import Fact, Table, plain
from kgprof.render.visible import one_line
from kgprof.wording import plural, short_name

_ROW = 38  # pixels from lane to lane: a line of text above the blocks
_BLOCKS_AT, _BLOCK = 17, 16  # where in a row they begin, and how high the highest are
_AXIS = 18
_NAME = 56  # characters of a name in a block's title
_MOST_BLOCKS = 600  # of a run; analysis makes far fewer
_TICKS = 4

# What is no kind of kernel: its class, how high it is drawn, what a reader calls it, what it stands for.
_MARKS: dict[str, tuple[str, int, str, str]] = {
    "span": ("t-span", _BLOCK, "user span", "a record_function of the workload's"),
    "region": ("t-region", _BLOCK, "compiled region", "one call of a compiled function"),
    "wait": ("t-wait", _BLOCK, "wait for the device", "cudaStreamSynchronize and its kin"),
    "launch": ("t-launch", 11, "launch", "a CUDA call that put work on the device"),
    "call": ("t-call", 6, "other CUDA call", "a CUDA call that put nothing on the device"),
    "idle-host": (
        "t-idle-host",
        _BLOCK,
        "idle: host had not asked",
        "nothing ran; what came next was not launched yet",
    ),
    "idle-launch": ("t-idle-launch", 11, "idle: launch on its way", "nothing ran, and what came next was launched"),
    "idle-unknown": ("t-idle-other", 6, "idle: unknown", "the trace does not hold the call that ended it"),
    "idle-edge": ("t-idle-other", 6, "idle: edge", "before the first or after the last device work of the trace"),
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
# What each part of the host's time is, for readers who do not know torch's inside.
_MEANINGS = {
    "Dynamo cache lookup (guards)": "finding the compiled code that fits this call",
    "prologue": "Dynamo's bytecode and AOTAutograd's wrapper before the compiled code",
    "wrapper of the compiled code": "Inductor's Python around the kernels, and replaying CUDA graphs",
    "generated kernels": "on a CPU the C++ kernels; on a GPU the launchers of the Triton kernels",
    "operators": "on a CPU dispatch and the work itself; on a GPU ATen's dispatch",
    "autograd engine": "its own time between the operators of the backward pass",
    "launch calls": "CUDA calls that put work on the device",
    "waits for the device": "cudaStreamSynchronize and its kin",
    "other CUDA calls": "CUDA calls that put nothing on the device",
    "user spans": "a record_function's time that nothing inside it accounts for",
    "the recorder's own": "kgprof's",
    "unexplained": "Python, and what the trace does not name",
}
_HOST_HEADINGS = (
    "the host was in",
    "mean \N{MICRO SIGN}s/step",
    "of the step",
    "median \N{MICRO SIGN}s (min to max)",
    "calls/step",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rectangle:
    style: str  # its class
    x: str
    y: int
    width: str
    height: int
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneRow:
    label: str
    busy: str
    label_y: int
    line_y: int  # the ground that the blocks stand on
    rectangles: tuple[Rectangle, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    x: str
    text: str
    side: str  # text-anchor


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    description: str
    height: int
    axis_y: int
    rows: tuple[LaneRow, ...]
    ticks: tuple[Tick, ...]
    step_end: str  # where the step ends on the host, if before the window does; else empty
    legend: tuple[tuple[str, str, str, str], ...]  # class, letter, name, meaning
    notes: tuple[str, ...]
    table: Table


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLine:
    part: str
    meaning: str
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepChart:
    anchor: str
    run: str
    caption: str
    drawing: Drawing | None
    missing: str  # why there is no drawing
    host_headings: tuple[str, ...]
    host: tuple[HostLine, ...]
    host_notes: tuple[str, ...]
    queue: tuple[Fact, ...]
    queue_missing: str


def step_charts(runs: Sequence[m.RunReport], limits: Limits) -> tuple[StepChart, ...]:
    charts = []
    for place, (index, run, kernels) in enumerate(broken_down(runs)):
        step, drawing, missing, caption = kernels.timeline, None, "", "no timeline"
        if isinstance(step, m.Skipped):
            missing = one_line(step.reason, limits.name)
        else:
            caption = (
                f"{one_line(step.name, limits.name)}, {milliseconds(step.duration_us)} ms on the host: the median of "
                f"{plural(step.steps, 'traced step')}, {kernels.measured_in.upper()} pass"
            )
            if place < limits.timelines and sum(len(lane.blocks) for lane in step.lanes) <= _MOST_BLOCKS:
                drawing = _drawing(step, limits)
            else:
                missing = "left out of this page to keep it small; report.json holds it"
        queue, queue_missing = kernels.queue, ""
        if kernels.device == "cuda" and isinstance(queue, m.Skipped):
            queue_missing = f"Launch delay and queue depth are not known: {one_line(queue.reason, limits.name)}"
        chart = StepChart(
            anchor=anchor(index),
            run=run_name(run, limits),
            caption=caption,
            drawing=drawing,
            missing=missing,
            host_headings=_HOST_HEADINGS,
            host=_host_lines(kernels.host_time, limits),
            host_notes=_host_notes(kernels.host_time, kernels, limits),
            queue=_queue_facts(queue),
            queue_missing=queue_missing,
        )
        charts.append(chart)
    return tuple(charts)


def known(runs: Sequence[m.RunReport]) -> bool:
    """Whether there is anything to say about a step of any of them."""
    return any(
        not (isinstance(kernels.timeline, m.Skipped) and isinstance(kernels.host_time, m.Skipped))
        for _, _, kernels in broken_down(runs)
    )


# ---------------------------------------------------------------- the drawing


def _drawing(step: m.StepTimeline, limits: Limits) -> Drawing:
    window_us = step.window_us or 1.0
    rows = []
    for place, lane in enumerate(step.lanes):
        top = _ROW * place
        row = LaneRow(
            label=_label(lane, limits),
            busy=f"{milliseconds(lane.busy_us)} ms, {percent(lane.busy_us / window_us)}",
            label_y=top + 12,
            line_y=top + _BLOCKS_AT + _BLOCK,
            rectangles=tuple(_rectangle(lane, block, top, window_us) for block in lane.blocks),
        )
        rows.append(row)
    busy = ", ".join(f"{_label(lane, limits)} {milliseconds(lane.busy_us)} ms" for lane in step.lanes)
    ticks = []
    for place in range(_TICKS + 1):
        side = "start" if not place else "end" if place == _TICKS else "middle"
        text = "0" if not place else figure(window_us * place / _TICKS)
        ticks.append(Tick(x=of_width(place / _TICKS), text=f"{text} us" if place == _TICKS else text, side=side))
    return Drawing(
        description=f"Timeline of {milliseconds(window_us)} ms in {count(len(rows))} lanes: {busy}",
        height=_ROW * len(rows) + _AXIS,
        axis_y=_ROW * len(rows) + 2,
        rows=tuple(rows),
        ticks=tuple(ticks),
        step_end=of_width(step.duration_us / window_us) if step.duration_us < window_us else "",
        legend=tuple(_legend(step)),
        notes=tuple(f"{note[:1].upper()}{note[1:]}" for note in _notes(step)),
        table=_lane_table(step, limits),
    )


def _label(lane: m.Lane, limits: Limits) -> str:
    content = _CONTENTS.get(lane.content, lane.content)
    return one_line(f"{lane.owner} {content}" if lane.content == "idle" else f"{lane.owner}: {content}", limits.name)


def _rectangle(lane: m.Lane, block: m.LaneBlock, top: int, window_us: float) -> Rectangle:
    mark, name = _MARKS.get(_mark(lane, block)), short_name(one_line(block.name, 20_000), _NAME)
    kind = block.kind if block.kind in LETTERS else "other"
    style, height = (mark[0], mark[1]) if mark else (f"k-{kind}", _BLOCK)
    if lane.content == "idle":
        cause = mark[2] if mark else "idle"
        name = f"{cause}, until {name}" if name else cause
    when = f"{figure(block.duration_us)} us from {figure(block.start_us)} us on"
    several = f"{count(block.events)} together, {when}; the longest: {name}"
    return Rectangle(
        style=style,
        x=of_width(block.start_us / window_us),
        y=top + _BLOCKS_AT + _BLOCK - height,
        width=of_width(block.duration_us / window_us),
        height=height,
        title=f"{name}: {when}" if block.events == 1 else several,
    )


def _mark(lane: m.Lane, block: m.LaneBlock) -> str:
    return f"idle-{block.kind}" if lane.content == "idle" else block.kind


def _legend(step: m.StepTimeline) -> Iterator[tuple[str, str, str, str]]:
    """What is in the drawing, kinds of kernels first."""
    present = {_mark(lane, block) for lane in step.lanes for block in lane.blocks}
    for kind, name, meaning in breakdown.KINDS:
        if kind in present and kind in set(m.KernelKind):
            yield f"k-{kind}", LETTERS[kind], name, meaning
    for mark, (style, _, name, meaning) in _MARKS.items():
        if mark in present:
            yield style, "", name, meaning


def _notes(step: m.StepTimeline) -> Iterator[str]:
    """What a reader of the drawing must know of it."""
    if step.merged_blocks:
        yield (
            f"{plural(step.merged_events, 'event')} shorter than {figure(step.merged_below_us)} us are drawn as "
            f"{plural(step.merged_blocks, 'block')}: neighbours pushed together, kind by kind, so that the blocks "
            "of a kind are together as long as its events"
        )
    if step.duration_us < step.window_us:
        yield "the dashed line is the step's end on the host; beyond it the device finishes what the step launched"
    if step.from_other_steps:
        yield f"{count(step.from_other_steps)} of the device's events were not launched by this step"
    if step.after_the_window:
        yield f"{plural(step.after_the_window, 'device event')} that the step launched began later than is drawn"
    if covered := sum(lane.covered for lane in step.lanes):
        yield f"{plural(covered, 'device event')} ran under others of their stream, without a block"
    if step.lanes_left_out:
        yield f"{plural(step.lanes_left_out, 'lane')} with {figure(step.left_out_us)} us in all left out"


def _lane_table(step: m.StepTimeline, limits: Limits) -> Table:
    rows = tuple(
        (
            _label(lane, limits),
            figure(lane.busy_us),
            percent(lane.busy_us / step.window_us if step.window_us else 0.0),
            count(sum(block.events for block in lane.blocks) + lane.covered),
            count(len(lane.blocks)),
        )
        for lane in step.lanes
    )
    return plain("Lanes", ("lane", "\N{MICRO SIGN}s", "of what is drawn", "events", "blocks"), rows)


# ---------------------------------------------------------------- the host's part


def _host_lines(host: m.HostTime | m.Skipped, limits: Limits) -> tuple[HostLine, ...]:
    """None where it is not known."""
    if isinstance(host, m.Skipped):
        return ()
    lines = [
        HostLine(
            part=one_line(part.name, limits.name),
            meaning=_MEANINGS.get(part.name, ""),
            cells=(
                figure(part.mean_us),
                percent(part.mean_us / host.mean_us if host.mean_us else 0.0),
                f"{figure(part.median_us)} ({span(figure(part.minimum_us), figure(part.maximum_us))})",
                figure(part.calls) if part.calls is not None else "",
            ),
        )
        for part in host.parts[: limits.lines]
    ]
    whole = HostLine(part="the whole step", meaning="", cells=(figure(host.mean_us), percent(1.0), "", ""))
    return (*lines, whole)


def _host_notes(host: m.HostTime | m.Skipped, kernels: m.KernelBreakdown, limits: Limits) -> tuple[str, ...]:
    if isinstance(host, m.Skipped):
        return (f"What the host did is not known: {one_line(host.reason, limits.name)}",)
    said = [
        f"Each moment of the thread that takes the steps belongs to the innermost event that was open; "
        f"{plural(host.steps, 'step')}, {kernels.measured_in.upper()} pass. The profiler's own cost is in every part, "
        "most where calls are many"
    ]
    if host.other_threads_us:
        said.append(
            f"In {figure(host.other_threads_us)} us a step of the unexplained time another thread ran operators or "
            "CUDA calls"
        )
    return tuple(said)


# ---------------------------------------------------------------- launches


def _queue_facts(queue: m.LaunchQueue | m.Skipped) -> tuple[Fact, ...]:
    if isinstance(queue, m.Skipped):
        return ()
    spread = f"p10 to p90 {span(figure(queue.p10_us), figure(queue.p90_us))}, at most {figure(queue.maximum_us)}"
    return (
        Fact(
            name="launch delay",
            value=f"median {figure(queue.median_us)} us ({spread}): from a call's return to the start of the first "
            f"thing that it launched, so waiting for the work before it is in it. {count(queue.calls)} calls; "
            f"{count(queue.before_return)} of them had not returned when it started, and count as 0",
        ),
        Fact(
            name="queue depth",
            value=f"mean {figure(queue.mean_depth)}, at most {count(queue.maximum_depth)} operations launched and not "
            f"begun, over the window; none in {percent(queue.empty_share)} of it. A CUDA graph's come all at once",
        ),
    )
