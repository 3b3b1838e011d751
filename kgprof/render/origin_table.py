"""Whose lines a run's kernels compute, what its device waited for, and in which region or span its work began."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kgprof import model as m
from kgprof.render import breakdown
from kgprof.render.chart import broken_down
from kgprof.render.limits import Limits, run_name
from kgprof.render.quantity import count, figure, percent, span
from kgprof.render.visible import one_line
from kgprof.wording import plural, relative

_LINES = 9  # of one kernel; a fused one may hold hundreds
_HOST_PARTS = 4  # of the host's step, in a sentence
_SPANS = 12  # rows of a table of spans, and of what the device waited for
_CAUSES = {
    "host had not asked": "nothing ran, and the call that launched what came next had not begun",
    "launch on its way": "that call had begun, and what it launched had not",
    "unknown": "the trace holds no call for what came next",
    "before the first / after the last": "device work of the traced window",
}
_UNATTRIBUTED = "(unattributed)"  # the row that every table of spans has, last


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanTable:
    title: str
    rows: tuple[tuple[str, str, str, str], ...]  # span, device events per step, us per step, share of device time


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTable:
    """Of a CUDA run: where its device's time went, and what its idle time waited for."""

    run: str
    idle: tuple[tuple[str, str, str, str], ...]  # cause, us per step, share of the window, what the cause is
    idle_missing: str  # why ``idle`` is empty
    host_spans: tuple[tuple[str, str, str], ...]  # span, us per step, share of the window
    spans: tuple[SpanTable, ...]
    steps: str  # the least, median and most device time of a step; empty where no step launched any
    input_copies: str  # of CUDA graphs; empty where none was replayed


def place(location: m.Location, root: str, longest: int) -> str:
    where = f"{relative(location.file, root)}:{location.line}"
    return one_line(f"{where} in {location.function}" if location.function else where, longest)


def places(lines: Sequence[m.Location], root: str, limits: Limits) -> tuple[tuple[str, ...], str]:
    """The lines that the page shows, and how many more there are, in words."""
    shown = tuple(place(line, root, limits.name) for line in lines[: min(_LINES, limits.lines)])
    return shown, plural(len(lines) - 1, "more line") if len(lines) > 1 else ""


def known(kernels: m.KernelBreakdown) -> str:
    """How much of the time has source lines, or why none has."""
    if isinstance(kernels.lines_us, m.Skipped):
        return f"Source lines are not known: {kernels.lines_us.reason}"
    share = kernels.lines_us / kernels.total_us if kernels.total_us else 0.0
    return f"{percent(share)} of the {breakdown.unit(kernels)} comes from known source lines"


def idle_causes(idle: m.DeviceIdle) -> tuple[tuple[str, float], ...]:
    """In words, with microseconds of the whole window; they add up to ``idle.total_us``."""
    return (
        ("host had not asked", idle.host_us),
        ("launch on its way", idle.launch_us),
        ("unknown", idle.unknown_us),
        ("before the first / after the last", idle.edges_us),
    )


def idle_sentence(kernels: m.KernelBreakdown) -> str:
    """Empty on a CPU."""
    if kernels.device != "cuda":
        return ""
    if isinstance(kernels.idle, m.Skipped):
        return f"why the device was idle is not known: {kernels.idle.reason}"
    causes = ", ".join(
        f"{cause} {figure(us / breakdown.steps_of(kernels))} ({_of_window(us, kernels)})"
        for cause, us in idle_causes(kernels.idle)
    )
    return f"idle, us per traced step (of the window): {causes}"


def device_tables(runs: Sequence[m.RunReport], limits: Limits) -> tuple[DeviceTable, ...]:
    """None on a CPU."""
    return tuple(
        DeviceTable(
            run=run_name(run, limits),
            idle=_idle(kernels),
            idle_missing=one_line(kernels.idle.reason, limits.name) if isinstance(kernels.idle, m.Skipped) else "",
            host_spans=_host_spans(kernels, limits),
            spans=_span_tables(kernels, limits),
            steps=one_line(steps_sentence(kernels), 4 * limits.name),
            input_copies=one_line(input_copies_sentence(kernels), 4 * limits.name),
        )
        for _, run, kernels in broken_down(runs)
        if kernels.device == "cuda"
    )


def input_copies_sentence(kernels: m.KernelBreakdown) -> str:
    """Empty where no CUDA graph was launched."""
    copies = kernels.input_copies
    if isinstance(copies, m.Skipped):
        return ""
    if not copies.count:
        return f"Before {plural(copies.replays, 'launch', 'launches')} of CUDA graphs no input was copied"
    each = f"{plural(copies.count, 'copy', 'copies')} of {figure(copies.total_us / copies.count)} us each on average"
    return (
        f"Inputs copied for CUDA graphs, because they do not stay where the graph reads them: {each} before "
        f"{plural(copies.replays, 'launch', 'launches')}, {figure(copies.total_us / breakdown.steps_of(kernels))} us "
        f"{_per(kernels)}, {percent(copies.share)} of the device time"
    )


def _per(kernels: m.KernelBreakdown) -> str:
    return "a step" if kernels.steps else "in all"


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
    return f"host, us of a step of {figure(host.mean_us)}, mean of {host.steps}: {', '.join(named)}"


def queue_sentence(kernels: m.KernelBreakdown) -> str:
    """Empty on a CPU, and where the trace does not say."""
    queue = kernels.queue
    if isinstance(queue, m.Skipped):
        return ""
    spread = span(figure(queue.p10_us), figure(queue.p90_us))
    return (
        f"launch delay median {figure(queue.median_us)} us (p10 to p90 {spread}), queue depth mean "
        f"{figure(queue.mean_depth)}, at most {count(queue.maximum_depth)}, empty in {percent(queue.empty_share)} of "
        "the window"
    )


def steps_sentence(kernels: m.KernelBreakdown) -> str:
    """Empty where no marked step launched anything. Of an even number of steps the lower median."""
    steps = sorted((step for step in kernels.by_step if step.span != _UNATTRIBUTED), key=lambda step: step.total_us)
    if not steps:
        return ""
    least, median, most = steps[0], steps[(len(steps) - 1) // 2], steps[-1]
    said = (
        f"{word} {figure(step.total_us)} us ({step.span})"
        for word, step in (("least", least), ("median", median), ("most", most))
    )
    return f"Device time by the step that launched it, {plural(len(steps), 'step')}: {', '.join(said)}"


def _idle(kernels: m.KernelBreakdown) -> tuple[tuple[str, str, str, str], ...]:
    if isinstance(kernels.idle, m.Skipped):
        return ()
    return tuple(
        (cause, figure(us / breakdown.steps_of(kernels)), _of_window(us, kernels), _CAUSES.get(cause, ""))
        for cause, us in (*idle_causes(kernels.idle), ("all idle time", kernels.idle.total_us))
    )


def _host_spans(kernels: m.KernelBreakdown, limits: Limits) -> tuple[tuple[str, str, str], ...]:
    if isinstance(kernels.idle, m.Skipped):
        return ()
    spans = sorted(kernels.idle.host_spans, key=lambda span: -span.total_us)
    shown = [(one_line(span.name, limits.name), span.total_us) for span in spans[: min(_SPANS, limits.lines)]]
    rest = spans[len(shown) :]
    if rest:
        shown.append((f"{count(len(rest))} more", sum(span.total_us for span in rest)))
    return tuple((name, figure(us / breakdown.steps_of(kernels)), _of_window(us, kernels)) for name, us in shown)


def _span_tables(kernels: m.KernelBreakdown, limits: Limits) -> tuple[SpanTable, ...]:
    tables = (("compiled region", kernels.by_region), ("user span", kernels.by_span))
    return tuple(
        SpanTable(title=title, rows=_span_rows(title, spans, kernels, limits))
        for title, spans in tables
        if any(span.span != _UNATTRIBUTED for span in spans)
    )


def _span_rows(
    title: str, spans: Sequence[m.SpanTotal], kernels: m.KernelBreakdown, limits: Limits
) -> tuple[tuple[str, str, str, str], ...]:
    """Largest first; what is in no span stays last, and what the page has no room for is summed above it."""
    *named, unattributed = spans
    named.sort(key=lambda span: -span.total_us)
    shown, rest = named[: min(_SPANS, limits.lines)], named[min(_SPANS, limits.lines) :]
    if rest:
        calls, total_us = sum(span.count for span in rest), sum(span.total_us for span in rest)
        shown.append(m.SpanTotal(span=f"{count(len(rest))} more", count=calls, total_us=total_us))
    return tuple(
        (
            f"(in no {title})" if span is unattributed else one_line(span.span, limits.name),
            figure(span.count / breakdown.steps_of(kernels)),
            figure(span.total_us / breakdown.steps_of(kernels)),
            percent(span.total_us / kernels.total_us if kernels.total_us else 0.0),
        )
        for span in (*shown, unattributed)
    )


def _of_window(us: float, kernels: m.KernelBreakdown) -> str:
    return percent(us / kernels.window_us if kernels.window_us else 0.0)
