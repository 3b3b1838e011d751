"""From a trace to the kernel breakdown: which kernel, how often, how long, and what the rest of the window was."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypedDict

from kgprof.analysis import kernel_kinds, timeline
from kgprof.analysis.kernel_kinds import Classified
from kgprof.analysis.kineto import Trace, TraceEvent
from kgprof.analysis.timeline import Interval, Window
from kgprof.model import KernelBreakdown, KernelKind, KernelRow, KindTotal, PassName, Skipped

DEVICE_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")
LAUNCH_CATEGORIES = ("cuda_runtime", "cuda_driver")
# Every call through which work reaches the device; one cudaGraphLaunch stands for a whole graph of kernels.
GRAPH_LAUNCH_PREFIXES = ("cudaGraphLaunch", "cuGraphLaunch")
LAUNCH_PREFIXES = ("cudaLaunchKernel", "cuLaunchKernel", "cudaLaunchCooperativeKernel", *GRAPH_LAUNCH_PREFIXES)

Classify = Callable[[TraceEvent], Classified]


class _WindowFields(TypedDict):
    window_us: float
    busy_us: float
    idle_us: float


class _TableFields(TypedDict):
    total_us: float
    kinds: tuple[KindTotal, ...]
    rows: tuple[KernelRow, ...]
    fused_kinds: tuple[KernelKind, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Occurrence:
    event: TraceEvent
    own_ns: int  # what this occurrence counts with: self time on the CPU, duration on the device


def breakdown(
    trace: Trace, *, device: str, measured_in: PassName, cpp_kernel_profile: bool
) -> KernelBreakdown | Skipped:
    """Break the traced steps down. ``device`` is the run's; a CUDA run that put nothing on it is shown as a CPU run."""
    if device == "cuda":
        on_device = tuple(event for event in trace.events if event.category in DEVICE_CATEGORIES)
        if on_device:
            return _of_device(trace, on_device, measured_in)
    operators = tuple(event for event in trace.events if event.category == "cpu_op")
    if not operators:
        return Skipped(reason="the trace holds no operator and no device kernel")
    warnings = (
        ("nothing ran on the GPU in the traced steps: the CPU's operators are shown",) if device == "cuda" else ()
    )
    return _of_host(trace, operators, measured_in, warnings, cpp_kernel_profile=cpp_kernel_profile)


# ---------------------------------------------------------------- CUDA


def _of_device(trace: Trace, on_device: Sequence[TraceEvent], measured_in: PassName) -> KernelBreakdown:
    """Every device event counts, with its full duration: device work outlives the step that launched it."""
    intervals = [(event.start_ns, event.end_ns) for event in on_device]
    steps = timeline.profiler_steps(trace.events)
    marked = timeline.window_of(steps or intervals)
    window = marked.around(intervals)
    return KernelBreakdown(
        device="cuda",
        measured_in=measured_in,
        steps=len(steps),
        **_window_fields(window, intervals),
        launches=_launches(trace.events, marked if steps else None, LAUNCH_PREFIXES),
        graph_launches=_launches(trace.events, marked if steps else None, GRAPH_LAUNCH_PREFIXES),
        **_tables(
            (_Occurrence(event=event, own_ns=event.duration_ns) for event in on_device),
            lambda event: kernel_kinds.of_device_event(event.name, event.category),
        ),
        warnings=(*trace.warnings, *_step_warnings(steps), *_widened(marked, window)),
    )


def _launches(events: Iterable[TraceEvent], steps: Window | None, prefixes: tuple[str, ...]) -> int | Skipped:
    """Launch calls on the host, of the marked steps where there are any."""
    calls = [event for event in events if event.category in LAUNCH_CATEGORIES]
    if not calls:
        return Skipped(reason="the trace holds no CUDA runtime or driver calls")
    inside = (event for event in calls if steps is None or steps.start_ns <= event.start_ns < steps.end_ns)
    return sum(event.name.startswith(prefixes) for event in inside)


def _widened(marked: Window, window: Window) -> tuple[str, ...]:
    before, after = marked.start_ns - window.start_ns, window.end_ns - marked.end_ns
    if not before and not after:
        return ()
    return (
        "the window is the traced steps, widened to the device events that belong to them: "
        f"by {before / 1000:,.1f} us before and {after / 1000:,.1f} us after",
    )


# ---------------------------------------------------------------- CPU


def _of_host(
    trace: Trace,
    operators: Sequence[TraceEvent],
    measured_in: PassName,
    warnings: tuple[str, ...],
    *,
    cpp_kernel_profile: bool,
) -> KernelBreakdown | Skipped:
    """Self time of every operator inside the steps. Operators that reach out of the window are cut at its edge."""
    steps = timeline.profiler_steps(trace.events)
    window = timeline.window_of(steps or [(event.start_ns, event.end_ns) for event in operators])
    occurrences = _self_times(operators, window)
    if not occurrences:
        return Skipped(reason="no operator ran inside the traced steps")
    tables = _tables(occurrences, lambda event: kernel_kinds.of_operator(event.name))
    return KernelBreakdown(
        device="cpu",
        measured_in=measured_in,
        steps=len(steps),
        **_window_fields(window, [window.clip((o.event.start_ns, o.event.end_ns)) for o in occurrences]),
        launches=Skipped(reason="a CPU run launches no device kernels"),
        graph_launches=Skipped(reason="a CPU run launches no CUDA graphs"),
        **tables,
        warnings=(
            *warnings,
            *trace.warnings,
            *_step_warnings(steps),
            *_hidden_kernels(tables["rows"], cpp_kernel_profile=cpp_kernel_profile),
        ),
    )


def _self_times(operators: Sequence[TraceEvent], window: Window) -> list[_Occurrence]:
    inside = [event for event in operators if event.start_ns < window.end_ns and event.end_ns > window.start_ns]
    occurrences: list[_Occurrence] = []
    for events in timeline.by_thread(inside).values():
        clipped = [window.clip((event.start_ns, event.end_ns)) for event in events]
        own = timeline.self_times_ns(clipped)
        occurrences += [_Occurrence(event=event, own_ns=ns) for event, ns in zip(events, own, strict=True)]
    return occurrences


def _hidden_kernels(rows: Sequence[KernelRow], *, cpp_kernel_profile: bool) -> tuple[str, ...]:
    if cpp_kernel_profile:
        return ()
    hidden = [row.total_us for row in rows if row.name.startswith(kernel_kinds.CALL_OF_GENERATED_CODE)]
    if not hidden:
        return ()
    return (
        "Inductor's C++ kernels were compiled without kernel profiling: their time is inside the framework rows "
        f"'{kernel_kinds.CALL_OF_GENERATED_CODE} ...' ({sum(hidden) / 1000:,.3f} ms in all)",
    )


# ---------------------------------------------------------------- both


def _window_fields(window: Window, intervals: Sequence[Interval]) -> _WindowFields:
    busy = timeline.union_ns(intervals)
    return {
        "window_us": window.duration_ns / 1000,
        "busy_us": busy / 1000,
        "idle_us": (window.duration_ns - busy) / 1000,
    }


def _step_warnings(steps: Sequence[Interval]) -> tuple[str, ...]:
    if steps:
        return ()
    return ("the trace marks no steps: the window runs from the first counted event to the last",)


def _tables(occurrences: Iterable[_Occurrence], classify: Classify) -> _TableFields:
    """``total_us``, ``kinds`` and ``rows``, which all add up to the same time."""
    by_row: dict[tuple[str, Classified], list[int]] = defaultdict(list)
    for occurrence in occurrences:
        by_row[occurrence.event.name, classify(occurrence.event)].append(occurrence.own_ns)
    total = sum(sum(times) for times in by_row.values())
    rows = [_row(name, classified, times, total) for (name, classified), times in by_row.items()]
    return {
        "total_us": total / 1000,
        "kinds": tuple(_kind_totals(by_row)),
        "rows": tuple(sorted(rows, key=lambda row: (-row.total_us, row.name, row.kind))),
        "fused_kinds": _fused_kinds(rows),
    }


def _fused_kinds(rows: Iterable[KernelRow]) -> tuple[KernelKind, ...]:
    """A kind without a kernel of its own is not absent where a generated kernel holds its operators."""
    inside = {kernel_kinds.of_operator(f"aten::{op}").kind for row in rows for op in row.ops}
    return tuple(kind for kind in KernelKind if kind in inside)


def _row(name: str, classified: Classified, times_ns: Sequence[int], total_ns: int) -> KernelRow:
    return KernelRow(
        name=name,
        kind=classified.kind,
        generator=classified.generator,
        count=len(times_ns),
        total_us=sum(times_ns) / 1000,
        share=sum(times_ns) / total_ns if total_ns else 0.0,
        min_us=min(times_ns) / 1000,
        median_us=median(times_ns) / 1000,
        max_us=max(times_ns) / 1000,
        ops=classified.ops,
    )


def _kind_totals(by_row: dict[tuple[str, Classified], list[int]]) -> Iterable[KindTotal]:
    for kind in KernelKind:
        times = [ns for (_, classified), own in by_row.items() if classified.kind is kind for ns in own]
        if times:
            yield KindTotal(kind=kind, count=len(times), total_us=sum(times) / 1000)
