"""One step of each run as an SVG of lanes, with its tables: what it shows is read without a script, or colours.

Lengths along the time are per cent of the width, so that the same drawing fits a telephone and a wall; a block's kind
is also its height, and hovering says what it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from kgprof import model as m
from kgprof.render.chart import LETTERS, Legend, LegendEntry, broken_down, legend
from kgprof.render.escaping import one_line
from kgprof.render.limits import Limits, anchor
from kgprof.render.quantity import count, figure, milliseconds, of_width, percent, span
from kgprof.render.run_order import kept
from kgprof.render.table import Block, Cell, Drawing, Fact, Facts, Fold, Small, plain
from kgprof.wording import plural, short_name

_ROW = 38  # pixels from lane to lane: a line of text above the blocks
_BLOCKS_AT, _BLOCK = 17, 16  # where in a row they begin, and how high the highest are
_AXIS = 18
_NAME = 56  # characters of a name in a block's title
_MOST_BLOCKS = 600  # of a run; analysis makes far fewer
_TICKS = 4

# What is no kind of kernel: its class is t-CLASS, how high it is drawn, what a reader calls it, what it stands for.
_MARKS: dict[str, tuple[str, int, str, str]] = {
    "span": ("span", _BLOCK, "user span", "a record_function of the workload's"),
    "region": ("region", _BLOCK, "compiled region", "one call of a compiled function"),
    "wait": ("wait", _BLOCK, "GPU sync", "cudaStreamSynchronize and similar calls"),
    "launch": ("launch", 11, "launch", "a CUDA call that starts GPU work"),
    "call": ("call", 6, "other CUDA call", "a CUDA call that starts no GPU work"),
    "idle-host": ("idle-host", _BLOCK, "idle: waiting for the CPU", "the next launch had not been issued"),
    "idle-launch": ("idle-launch", 11, "idle: launch latency", "the next launch was issued but had not started"),
    "idle-unknown": ("idle-other", 6, "idle: unknown", "the trace does not hold the call that ended it"),
    "idle-edge": ("idle-other", 6, "idle: edge", "before the first or after the last GPU work of the trace"),
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
# What each part of the CPU time is, for readers who do not know torch's inside.
_MEANINGS = {
    "Dynamo cache lookup (guards)": "finding the compiled code that fits this call",
    "prologue": "Dynamo's bytecode and AOTAutograd's wrapper before the compiled code",
    "wrapper of the compiled code": "Inductor's Python around the kernels, and replaying CUDA graphs",
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
class Lanes(Drawing):
    kind: ClassVar[str] = "lanes"
    description: str
    height: int
    axis_y: int
    rows: tuple[LaneRow, ...]
    ticks: tuple[tuple[str, str, str], ...]  # where, its text, and the text's anchor
    step_end: str  # where the step ends on the host, if before the window does; else empty


def known(runs: Sequence[m.RunReport]) -> bool:
    """Whether there is anything to say about a step of any of them."""
    return any(
        not (isinstance(kernels.timeline, m.Skipped) and isinstance(kernels.host_time, m.Skipped))
        for _, _, kernels in broken_down(runs)
    )


def step_folds(runs: Sequence[m.RunReport], limits: Limits) -> tuple[Fold, ...]:
    """The drawing of each run's step, what its host did, and how far ahead of the device that was."""
    folds, drawn = [], kept(runs, limits.timelines)
    for index, run, kernels in broken_down(runs):
        name, step, queue, caption = one_line(run.key.slug, limits.name), kernels.timeline, kernels.queue, "no timeline"
        blocks: list[Block] = []
        if isinstance(step, m.Skipped):
            blocks.append(f"No timeline: {one_line(step.reason, limits.name)}.")
        else:
            caption = (
                f"{one_line(step.name, limits.name)}, {milliseconds(step.duration_us)} ms of CPU time: the median of "
                f"{plural(step.steps, 'traced step')}, {kernels.measured_in.upper()} pass"
            )
            if index in drawn and sum(len(lane.blocks) for lane in step.lanes) <= _MOST_BLOCKS:
                blocks += _drawn(step, name, limits)
            else:
                blocks.append("No timeline: left out of this page to keep it small; report.json holds it.")
        blocks += _host(kernels, name, limits)
        if isinstance(queue, m.LaunchQueue):
            blocks.append(_queue(queue))
        elif kernels.device == "cuda":
            blocks.append(f"Launch delay and queue depth are not known: {one_line(queue.reason, limits.name)}.")
        folds.append(
            Fold(name, blocks=tuple(blocks), caption=caption, anchor=f"step-{anchor(index)}", run=anchor(index))
        )
    return tuple(folds)


# ---------------------------------------------------------------- the drawing


def _drawn(step: m.StepTimeline, name: str, limits: Limits) -> Iterator[Block]:
    """Legend, lanes, what a reader of them must know, and the lanes as a table."""
    present = {_mark(lane, block) for lane in step.lanes for block in lane.blocks}
    marks = (
        LegendEntry(kind=kind, letter="", name=called, meaning=meaning, family="t")
        for mark, (kind, _, called, meaning) in _MARKS.items()
        if mark in present
    )
    yield Legend(entries=(*legend(present.intersection(m.KernelKind)), *marks))
    labels = []
    for lane in step.lanes:
        content = _CONTENTS.get(lane.content, lane.content)
        label = f"{lane.owner} {content}" if lane.content == "idle" else f"{lane.owner}: {content}"
        labels.append(one_line(label, limits.name))
    yield _lanes(step, labels)
    yield from (f"{note[:1].upper()}{note[1:]}." for note in _notes(step))
    rows = (
        (
            label,
            figure(lane.busy_us),
            percent(lane.busy_us / step.window_us if step.window_us else 0.0),
            count(sum(block.events for block in lane.blocks) + lane.covered),
            count(len(lane.blocks)),
        )
        for label, lane in zip(labels, step.lanes, strict=True)
    )
    table = plain(f"Lanes of {name}", ("lane", "\N{MICRO SIGN}s", "of what is drawn", "events", "blocks"), rows)
    yield Fold("The lanes as a table", blocks=(table,))


def _lanes(step: m.StepTimeline, labels: Sequence[str]) -> Lanes:
    window_us = step.window_us or 1.0
    rows = tuple(
        LaneRow(
            label=label,
            busy=f"{milliseconds(lane.busy_us)} ms, {percent(lane.busy_us / window_us)}",
            label_y=top + 12,
            line_y=top + _BLOCKS_AT + _BLOCK,
            rectangles=tuple(_rectangle(lane, block, top, window_us) for block in lane.blocks),
        )
        for top, label, lane in zip(range(0, _ROW * len(labels), _ROW), labels, step.lanes, strict=True)
    )
    busy = ", ".join(f"{label} {milliseconds(lane.busy_us)} ms" for label, lane in zip(labels, step.lanes, strict=True))
    ticks = []
    for place in range(_TICKS + 1):
        side = "start" if not place else "end" if place == _TICKS else "middle"
        text = "0" if not place else figure(window_us * place / _TICKS)
        ticks.append((of_width(place / _TICKS), f"{text} \N{MICRO SIGN}s" if place == _TICKS else text, side))
    return Lanes(
        description=f"Timeline of {milliseconds(window_us)} ms in {count(len(rows))} lanes: {busy}",
        height=_ROW * len(rows) + _AXIS,
        axis_y=_ROW * len(rows) + 2,
        rows=rows,
        ticks=tuple(ticks),
        step_end=of_width(step.duration_us / window_us) if step.duration_us < window_us else "",
    )


def _rectangle(lane: m.Lane, block: m.LaneBlock, top: int, window_us: float) -> Rectangle:
    mark, name = _MARKS.get(_mark(lane, block)), short_name(one_line(block.name, 20_000), _NAME)
    kind = block.kind if block.kind in LETTERS else "other"
    style, height = (f"t-{mark[0]}", mark[1]) if mark else (f"k-{kind}", _BLOCK)
    if lane.content == "idle":
        cause = mark[2] if mark else "idle"
        name = f"{cause}, until {name}" if name else cause
    when = f"{figure(block.duration_us)} \N{MICRO SIGN}s, starting at {figure(block.start_us)} \N{MICRO SIGN}s"
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


def _notes(step: m.StepTimeline) -> Iterator[str]:
    if step.merged_blocks:
        below = f"shorter than {figure(step.merged_below_us)} \N{MICRO SIGN}s"
        yield (
            f"{plural(step.merged_events, 'event')} {below} are drawn as {plural(step.merged_blocks, 'block')}: "
            "neighbours of one kind are merged, and each block is as long as its events together"
        )
    if step.duration_us < step.window_us:
        yield "the dashed line is the end of the step on the CPU; after it the GPU finishes what the step launched"
    if step.from_other_steps:
        yield f"{count(step.from_other_steps)} GPU events were not launched by this step"
    if step.after_the_window:
        yield f"{plural(step.after_the_window, 'GPU event')} that the step launched began later than is drawn"
    if covered := sum(lane.covered for lane in step.lanes):
        yield f"{plural(covered, 'GPU event')} ran under others of their stream, without a block"
    if step.lanes_left_out:
        yield f"{plural(step.lanes_left_out, 'lane')} with {figure(step.left_out_us)} \N{MICRO SIGN}s in total omitted"


# ---------------------------------------------------------------- the CPU's part


def _host(kernels: m.KernelBreakdown, name: str, limits: Limits) -> Iterator[Block]:
    host = kernels.host_time
    if isinstance(host, m.Skipped):
        yield f"CPU time by activity is unknown: {one_line(host.reason, limits.name)}."
        return
    rows: list[tuple[Cell | str, ...]] = [
        (
            Cell(one_line(part.name, limits.name), below=(Small((_MEANINGS[part.name],), "detail"),))
            if part.name in _MEANINGS
            else one_line(part.name, limits.name),
            figure(part.mean_us),
            percent(part.mean_us / host.mean_us if host.mean_us else 0.0),
            f"{figure(part.median_us)} ({span(figure(part.minimum_us), figure(part.maximum_us))})",
            figure(part.calls) if part.calls is not None else "",
        )
        for part in host.parts[: limits.lines]
    ]
    rows.append(("the whole step", figure(host.mean_us), percent(1.0), "", ""))
    unit = "\N{MICRO SIGN}s"
    headings = ("activity", f"mean {unit}/step", "of the step", f"median {unit} (min to max)", "calls/step")
    yield plain(f"CPU time per step of {name}", headings, rows, style="")
    yield (
        f"Each moment of the thread that takes the steps belongs to the innermost event that was open; "
        f"{plural(host.steps, 'step')}, {kernels.measured_in.upper()} pass. The profiler's own cost is in every part, "
        "most where calls are many."
    )
    if host.other_threads_us:
        time = f"{figure(host.other_threads_us)} \N{MICRO SIGN}s per step"
        yield f"During {time} of the unexplained time another thread ran operators or CUDA calls."


def _queue(queue: m.LaunchQueue) -> Facts:
    spread = f"p10 to p90 {span(figure(queue.p10_us), figure(queue.p90_us))}, at most {figure(queue.maximum_us)}"
    delay = (
        f"median {figure(queue.median_us)} \N{MICRO SIGN}s ({spread}): from a call's return to the start of the first "
        f"thing that it launched, so waiting for the work before it is in it. {count(queue.calls)} calls; "
        f"{count(queue.before_return)} of them had not returned when it started, and count as 0"
    )
    depth = (
        f"mean {figure(queue.mean_depth)}, at most {count(queue.maximum_depth)} operations launched and not "
        f"begun, over the window; none in {percent(queue.empty_share)} of it. A CUDA graph's come all at once"
    )
    return Facts((Fact(name="launch delay", value=delay), Fact(name="queue depth", value=depth)))
