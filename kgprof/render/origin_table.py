"""Whose lines a run's kernels compute, what its device waited for, and in which region or span its work began."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kgprof import model as m
from kgprof.render import breakdown
from kgprof.render.chart import broken_down
from kgprof.render.limits import Limits, anchor
from kgprof.render.quantity import DASH, count, figure, percent, span
from kgprof.render.table import Block, Cell, Column, Fold, Small, Table, plain
from kgprof.wording import plural, relative

_LINES = 9  # of one kernel; a fused one may hold hundreds
_HOST_PARTS = 4  # of the host's step, in a sentence
_SPANS = 12  # rows of a table of spans, and of what the device waited for
# Why a device was idle: its field of DeviceIdle, its name, what it means, its colour. They add up to its ``total_us``.
_CAUSES = (
    ("host_us", "waiting for the CPU", "the next launch had not been issued", "t-idle-host"),
    ("launch_us", "launch latency", "issued, not yet started", "t-idle-launch"),
    ("unknown_us", "unknown", "the trace has no launch call for the next work", "t-idle-other"),
    ("edges_us", "before the first / after the last", "GPU work of the traced window", "t-idle-other"),
)
_UNATTRIBUTED = "(unattributed)"  # the row that every table of spans has, last


def place(location: m.Location, root: str) -> str:
    where = f"{relative(location.file, root)}:{location.line}"
    return f"{where} in {location.function}" if location.function else where


def places(lines: Sequence[m.Location], root: str, limits: Limits) -> tuple[str, ...]:
    return tuple(place(line, root) for line in lines[: min(_LINES, limits.lines)])


def known(kernels: m.KernelBreakdown) -> str:
    """How much of the time has source lines, or why none has."""
    if isinstance(kernels.lines_us, m.Skipped):
        return f"No source lines: {kernels.lines_us.reason}"
    share = kernels.lines_us / kernels.total_us if kernels.total_us else 0.0
    return f"{percent(share)} of the {breakdown.unit(kernels)} comes from known source lines"


def idle_sentence(kernels: m.KernelBreakdown) -> str:
    """Empty on a CPU."""
    if kernels.device != "cuda":
        return ""
    if isinstance(kernels.idle, m.Skipped):
        return f"reasons for GPU idle time unknown: {kernels.idle.reason}"
    causes = []
    for field, cause, *_ in _CAUSES:
        per_step, of_window = _idle(getattr(kernels.idle, field), kernels)
        causes.append(f"{cause} {per_step} ({of_window})")
    return f"GPU idle, µs per traced step (share of the window): {', '.join(causes)}"


def _idle(us: float, kernels: m.KernelBreakdown) -> tuple[str, str]:
    """Microseconds of a step, and the share of the window."""
    share = us / kernels.window_us if kernels.window_us else 0.0
    return figure(us / breakdown.steps_of(kernels)), percent(share)


def device_folds(runs: Sequence[m.RunReport], limits: Limits) -> tuple[Fold, ...]:
    """Of each CUDA run where its device's time went, and what its idle time waited for."""
    folds = []
    for index, run, kernels in broken_down(runs):
        if kernels.device != "cuda":
            continue
        name = run.key.slug
        blocks: list[Block] = [*_idle_tables(name, kernels, limits)]
        blocks += [f"{said}." for said in (steps_sentence(kernels), input_copies_sentence(kernels)) if said]
        for title, spans in (("compiled region", kernels.by_region), ("user span", kernels.by_span)):
            if any(span.span != _UNATTRIBUTED for span in spans):
                blocks.append(_span_table(f"GPU time of {name} by {title}", title, spans, kernels, limits))
        caption = "Why the GPU was idle"
        folds.append(Fold(name, blocks=tuple(blocks), caption=caption, run=anchor(index)))
    return tuple(folds)


def _idle_tables(name: str, kernels: m.KernelBreakdown, limits: Limits) -> tuple[Block, ...]:
    """By cause, and where the host had not asked by what it did instead; or why that is not known."""
    idle, units = kernels.idle, ("\N{MICRO SIGN}s per step", "of the window")
    if isinstance(idle, m.Skipped):
        return (f"Reasons for GPU idle time unknown: {idle.reason}",)
    scale_us = max(getattr(idle, field) for field, *_ in _CAUSES) or 1.0
    axis = f"0{DASH}{figure(scale_us / breakdown.steps_of(kernels))} \N{MICRO SIGN}s per step"

    def drawn(cause: str, us: float, style: str) -> tuple[str, str, Cell]:
        per_step, of_window = _idle(us, kernels)
        title = f"{cause}: {per_step} \N{MICRO SIGN}s per step, {of_window} of the window"
        return per_step, of_window, Cell(bar=min(us / scale_us, 1.0), title=title, bar_style=style)

    rows: list[tuple[Cell | str, ...]] = [
        (Cell(cause, below=(Small((meaning,), "detail"),)), *drawn(cause, getattr(idle, field), style))
        for field, cause, meaning, style in _CAUSES
    ]
    rows.append(("all idle time", *_idle(idle.total_us, kernels), ""))
    causes = plain(f"Idle time of {name}", ("GPU idle time", *units), rows, style="")
    spans = sorted(((span.name, span.total_us) for span in idle.host_spans), key=lambda span: -span[1])
    shown, rest = spans[: min(_SPANS, limits.lines)], spans[min(_SPANS, limits.lines) :]
    if rest:
        shown.append((f"{len(rest):,} more", sum(us for _, us in rest)))
    host = ((span, *drawn(span, us, _CAUSES[0][3])) for span, us in shown)
    headings, label = ("CPU meanwhile", *units), f"CPU activity while the GPU of {name} was idle"
    tables = (causes, plain(label, headings, host, style="", first="name")) if shown else (causes,)
    if not limits.timelines:  # no room for pictures
        return tuple(table.only(*(column.name for column in table.columns)) for table in tables)
    return tuple(replace(table, columns=(*table.columns, Column(axis, style="drawn"))) for table in tables)


def input_copies_sentence(kernels: m.KernelBreakdown) -> str:
    """Empty where no CUDA graph was launched."""
    copies = kernels.input_copies
    if isinstance(copies, m.Skipped):
        return ""
    if not copies.count:
        return f"No input was copied before {plural(copies.replays, 'CUDA-graph launch', 'CUDA-graph launches')}"
    each = f"{plural(copies.count, 'copy', 'copies')} of {figure(copies.total_us / copies.count)} µs each on average"
    return (
        f"Inputs copied because their address changes between CUDA-graph replays: {each} before "
        f"{plural(copies.replays, 'launch', 'launches')}, {figure(copies.total_us / breakdown.steps_of(kernels))} µs "
        f"{'per step' if kernels.steps else 'in all'}, {percent(copies.share)} of the GPU time"
    )


def host_sentence(kernels: m.KernelBreakdown) -> str:
    """The largest parts of the host's step; empty where that is not known."""
    host = kernels.host_time
    if isinstance(host, m.Skipped):
        return ""
    parts = sorted((part for part in host.parts if part.mean_us), key=lambda part: -part.mean_us)
    named = [
        f"{part.name} {figure(part.mean_us)} ({percent(part.mean_us / host.mean_us if host.mean_us else 0.0)})"
        for part in parts[:_HOST_PARTS]
    ]
    if rest := parts[_HOST_PARTS:]:
        named.append(f"{len(rest)} more {figure(sum(part.mean_us for part in rest))}")
    return f"CPU time of a {figure(host.mean_us)} µs step, µs, mean of {host.steps}: {', '.join(named)}"


def queue_sentence(kernels: m.KernelBreakdown) -> str:
    """Empty on a CPU, and where the trace does not say."""
    queue = kernels.queue
    if isinstance(queue, m.Skipped):
        return ""
    spread = span(figure(queue.p10_us), figure(queue.p90_us))
    return (
        f"launch delay median {figure(queue.median_us)} µs (p10 to p90 {spread}), queue depth mean "
        f"{figure(queue.mean_depth)}, at most {count(queue.maximum_depth)}, empty {percent(queue.empty_share)} of the "
        "time"
    )


def sentences(kernels: m.KernelBreakdown) -> tuple[str, ...]:
    """Why the device was idle, what was copied, and the host's step, as far as they are known."""
    made = (idle_sentence(kernels), input_copies_sentence(kernels), host_sentence(kernels), queue_sentence(kernels))
    return tuple(sentence for sentence in made if sentence)


def steps_sentence(kernels: m.KernelBreakdown) -> str:
    """Empty where no marked step launched anything. Of an even number of steps the lower median."""
    steps = sorted((step for step in kernels.by_step if step.span != _UNATTRIBUTED), key=lambda step: step.total_us)
    if not steps:
        return ""
    least, median, most = steps[0], steps[(len(steps) - 1) // 2], steps[-1]
    named = (("least", least), ("median", median), ("most", most))
    said = (f"{word} {figure(step.total_us)} µs ({step.span})" for word, step in named)
    return f"GPU time by the step that launched it, {plural(len(steps), 'step')}: {', '.join(said)}"


def _span_table(
    label: str, title: str, spans: Sequence[m.SpanTotal], kernels: m.KernelBreakdown, limits: Limits
) -> Table:
    """Largest first; what is in no span stays last, and what the page has no room for is summed above it."""
    *named, unattributed = spans
    named.sort(key=lambda span: -span.total_us)
    shown, rest = named[: min(_SPANS, limits.lines)], named[min(_SPANS, limits.lines) :]
    if rest:
        calls, total_us = sum(span.count for span in rest), sum(span.total_us for span in rest)
        shown.append(m.SpanTotal(span=f"{len(rest):,} more", count=calls, total_us=total_us))
    steps, whole = breakdown.steps_of(kernels), kernels.total_us or 1.0
    rows = (
        (
            f"(in no {title})" if span is unattributed else span.span,
            figure(span.count / steps),
            figure(span.total_us / steps),
            percent(span.total_us / whole),
        )
        for span in (*shown, unattributed)
    )
    headings = (title, "kernels and copies per step", "\N{MICRO SIGN}s per step", "of GPU time")
    return plain(label, headings, rows, style="", first="name")
