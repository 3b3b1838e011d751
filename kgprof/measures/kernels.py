"""From a trace to the kernel breakdown: which kernel, how often, how long, and what the rest of the
window was; and each compiled graph beside what eager mode does in its place, and how fast its
region moves its bytes."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from kgprof import model as m
from kgprof.measures import collectives
from kgprof.measures.collectives import REGION_PREFIX
from kgprof.measures.host_time import host_time
from kgprof.measures.idle import device_idle
from kgprof.measures.input_copies import input_copies
from kgprof.measures.kernel_kinds import (
    CALL_OF_GENERATED_CODE,
    Classified,
    Kinds,
    kind_of_operator,
    kinds_of,
    library_of,
)
from kgprof.measures.origins import Known, Lines, Origins, merged
from kgprof.measures.roofline import roofline
from kgprof.measures.step_timeline import step_timeline
from kgprof.reading import launches, timeline
from kgprof.reading.evidence import RunEvidence
from kgprof.reading.kineto import Columns, Trace
from kgprof.reading.timeline import Intervals, Numbers, Window

NO_STEPS = "the trace marks no steps, so the window runs from its first counted event to its last"
NO_LINES = "no source lines were recorded for kernels"
NOT_COMPILED = m.Skipped("no data on compiled kernels was recorded")
NOT_MEASURED = m.Skipped("no peak rates were measured")

Classify = Callable[[str, str], Classified]  # from a name and a category


def of_trace(run: RunEvidence) -> m.Kernels:
    """The kernels of TRACE; Skipped where there is no TRACE, or nothing in it can be broken
    down."""
    return _of_pass(run, m.PassName.TRACE)


def _of_kernels(run: RunEvidence) -> m.Kernels:
    return _of_pass(run, m.PassName.KERNELS)


@m.skippable
def shown(run: RunEvidence) -> m.Kernels:
    """From KERNELS, where C++ kernels have names; without it, or where it is damaged, from TRACE,
    with a warning."""
    reasons: list[str] = []
    for name, derive in ((m.PassName.KERNELS, _of_kernels), (m.PassName.TRACE, of_trace)):
        if isinstance(run.record.left_by(name), m.Skipped):
            continue
        kernels = run.once(derive)
        if isinstance(kernels, m.KernelBreakdown):
            return replace(kernels, warnings=(*reasons, *kernels.warnings))
        reasons.append(f"{name.upper()}: {kernels.reason}")
    if reasons:
        return m.Skipped("; ".join(reasons))
    m.known(run.record.trace)
    return m.Skipped("no pass was traced")


@m.skippable
def _of_pass(run: RunEvidence, name: m.PassName) -> m.Kernels:
    record = run.record
    origins: Sequence[m.KernelOrigin] = ()
    if isinstance(record.kernel_origins, m.KernelOrigins):
        origins = record.kernel_origins.origins
    return breakdown(
        m.known(run.trace(name)),
        device=run.whole.device,
        measured_in=name,
        cpp_kernel_profile=record.left_by(name).cpp_kernel_profile,
        origins=origins,
        compiled=record.compiled_kernels,
        ceilings=run.whole.recording.ceilings,
        kinds=run.whole.once(kinds_of),
    )


def breakdown(
    trace: Trace,
    *,
    device: str,
    measured_in: m.PassName,
    cpp_kernel_profile: bool,
    origins: Sequence[m.KernelOrigin] = (),
    compiled: m.CompiledKernels | m.Skipped = NOT_COMPILED,
    ceilings: m.Ceilings | m.Skipped = NOT_MEASURED,
    kinds: Kinds | None = None,
) -> m.Kernels:
    """Break the traced steps down. ``device`` is the run's; a CUDA run that put nothing on it is
    shown as a CPU run."""
    kinds = kinds or Kinds()
    columns = trace.columns
    known = Origins(origins)
    if device == "cuda" and columns.of_category(*launches.DEVICE_CATEGORIES).any():
        return _of_device(trace, known, measured_in, compiled, ceilings, kinds)
    if not columns.of_category("cpu_op").any():
        return m.Skipped("the trace has neither operators nor GPU kernels")
    warnings = []
    if device == "cuda":
        warnings.append("nothing ran on the GPU in the traced steps: the CPU's operators are shown")
    return _of_host(trace, known, measured_in, warnings, kinds, hides_cpp=not cpp_kernel_profile)


def _of_device(
    trace: Trace,
    origins: Origins,
    measured_in: m.PassName,
    compiled: m.CompiledKernels | m.Skipped,
    ceilings: m.Ceilings | m.Skipped,
    kinds: Kinds,
) -> m.KernelBreakdown:
    """Every device event counts, with its full duration: device work outlives the step that
    launched it."""
    columns = trace.columns
    work = launches.launched(trace.columns)
    intervals = timeline.intervals_of(columns, work.events)
    steps = timeline.profiler_steps(columns)
    marked = timeline.window_of(intervals)
    counted = None
    warnings = [*trace.warnings]
    if len(steps):
        marked = counted = timeline.window_of(steps)
    else:
        warnings.append(NO_STEPS)
    window = marked.around(intervals)
    known = origins.of(columns, work.events, work.calls)
    own_ns = columns.duration_ns[work.events]
    before = marked.start_ns - window.start_ns
    after = window.end_ns - marked.end_ns
    if before or after:
        warnings.append(
            f"the window covers the traced steps plus their GPU events: {before / 1000:,.1f} µs "
            f"before and {after / 1000:,.1f} µs after"
        )
    if (number := len(launches.devices(columns, work.events)[0])) > 1:
        warnings.append(
            f"work ran on {number} GPUs: busy means at least one worked, idle that none did"
        )
    return m.KernelBreakdown(
        device="cuda",
        measured_in=measured_in,
        **_stretch(_of_one_process(columns), window, intervals),
        **_fields(columns, work.events, own_ns, kinds.of_device_event, known),
        launches=_launches(columns, counted, launches.LAUNCH_PREFIXES),
        graph_launches=_launches(columns, counted, launches.GRAPH_LAUNCH_PREFIXES),
        idle=device_idle(columns, work, window),
        by_step=collectives.by_span(columns, work, timeline.step_marks(columns)),
        by_region=collectives.by_span(
            columns, work, columns.named(REGION_PREFIX, collectives.BACKWARD)
        ),
        by_span=collectives.by_span(columns, work, collectives.users_spans(columns)),
        queue=launches.queue(columns, work, window),
        timeline=step_timeline(columns, work, kinds),
        host_time=host_time(columns, work),
        communication=collectives.communication(columns, work, window, kinds),
        roofline=roofline(columns, work, known, compiled, ceilings),
        input_copies=input_copies(columns, work, kinds),
        warnings=tuple(warnings),
    )


def _launches(columns: Columns, steps: Window | None, prefixes: tuple[str, ...]) -> int | m.Skipped:
    """Launch calls on the host, of the marked steps where there are any."""
    calls = columns.of_category(*launches.LAUNCH_CATEGORIES)
    if not calls.any():
        return m.Skipped("the trace has no CUDA runtime or driver calls")
    if steps is not None:
        calls &= (columns.start_ns >= steps.start_ns) & (columns.start_ns < steps.end_ns)
    return int((calls & columns.named(*prefixes)).sum())


def _of_host(
    trace: Trace,
    origins: Origins,
    measured_in: m.PassName,
    warnings: list[str],
    kinds: Kinds,
    *,
    hides_cpp: bool,
) -> m.Kernels:
    """Self time of every operator inside the steps. Operators that reach out of the window are cut
    at its edge. ``hides_cpp``: C++ kernels were compiled without their own profiling."""
    columns = trace.columns
    operators = np.flatnonzero(columns.of_category("cpu_op"))
    marked = len(timeline.step_events(columns))
    steps = timeline.intervals_of(columns, launches.usual_steps(columns))
    every = timeline.intervals_of(columns, operators)
    window = timeline.window_of(every)
    if len(steps):
        window = timeline.window_of(steps)
    elif marked:
        return m.Skipped("torch compiled, or recorded a CUDA graph, in each traced step")
    inside = operators[window.touches(every)]
    if not len(inside):
        return m.Skipped("no operator ran inside the traced steps")
    clipped = window.clip(timeline.intervals_of(columns, inside))
    threads = columns.thread[inside]
    own_ns = np.zeros(len(inside), np.int64)
    for thread in set(threads.tolist()):
        own_ns[threads == thread] = timeline.self_times_ns(clipped[threads == thread])
    known = origins.of(columns, inside, inside)
    fields = _fields(columns, inside, own_ns, lambda name, _: kinds.of_operator(name), known)
    warnings += trace.warnings
    if not marked:
        warnings.append(NO_STEPS)
    elif len(steps) < marked:
        warnings.append(
            "torch compiled, or recorded a CUDA graph, in a traced step: shown are the "
            f"{len(steps)} of {marked} that follow one another and have neither"
        )
    hidden_us = [
        row.total_us for row in fields["rows"] if row.name.startswith(CALL_OF_GENERATED_CODE)
    ]
    if hidden_us and hides_cpp:
        warnings.append(
            "Inductor's C++ kernels were compiled without kernel profiling: their time is part "
            f"of the framework rows '{CALL_OF_GENERATED_CODE} ...' ({sum(hidden_us) / 1000:,.3f} "
            "ms in all)"
        )
    launched: int | m.Skipped = m.Skipped("a CPU run launches no GPU kernels")
    calls = columns.of_category(*launches.LAUNCH_CATEGORIES)
    calls &= columns.named(*launches.LAUNCH_PREFIXES)
    if calls.any():  # whose kernels the profiler did not record
        launched = int(calls.sum())
    return m.KernelBreakdown(
        device="cpu",
        measured_in=measured_in,
        **_stretch(len(steps), window, clipped),
        **fields,
        launches=launched,
        graph_launches=m.Skipped("a CPU run launches no CUDA graphs"),
        timeline=step_timeline(columns, launches.launched(columns), kinds),
        host_time=host_time(columns, launches.launched(columns)),
        communication=collectives.communication_on_cpu(columns, window),
        warnings=tuple(warnings),
    )


def _of_one_process(columns: Columns) -> int:
    """The number of marked steps; where several processes share a trace, of the first one's."""
    threads = columns.thread[timeline.step_events(columns)]
    return int((threads == threads[:1]).sum())


def _stretch(steps: int, window: Window, intervals: Intervals) -> dict[str, Any]:
    busy_ns = timeline.union_ns(intervals)
    return {
        "steps": steps,
        "window_us": window.duration_ns / 1000,
        "busy_us": busy_ns / 1000,
        "idle_us": (window.duration_ns - busy_ns) / 1000,
    }


def _fields(
    columns: Columns,
    which: launches.Indices,
    own_ns: Numbers,
    classify: Classify,
    known: Sequence[Known] | None,
) -> dict[str, Any]:
    """Those of a KernelBreakdown that tell kernels apart, of the events ``which``.

    ``own_ns``: what each counts with; ``total_us``, ``kinds`` and ``rows`` all add up to it.
    ``known``: of each; None where nothing was recorded about them.
    """
    total_ns = int(own_ns.sum())
    lines_ns = 0
    rows: list[m.KernelRow] = []
    of_kind_ns: Counter[m.KernelKind] = Counter()
    launched: Counter[m.KernelKind] = Counter()
    for members in launches.alike(columns, which):
        first = which[members[0]]
        name = columns.name_of(first)
        found = classify(name, columns.categories[columns.category[first]])
        # what takes longest comes first: a row's first line is shown alone
        of_lines: Counter[Lines] = Counter()
        for index in members.tolist():
            if known is not None and known[index].lines:
                of_lines[known[index].lines] += int(own_ns[index])
        from_lines = merged([each for each, _ in of_lines.most_common()])
        times_ns = own_ns[members]
        known_ns = sum(of_lines.values())
        row_ns = int(times_ns.sum())
        lines_ns += known_ns
        of_kind_ns[found.kind] += row_ns
        launched[found.kind] += len(times_ns)
        rows.append(
            m.KernelRow(
                name,
                found.kind,
                found.generator,
                count=len(times_ns),
                total_us=row_ns / 1000,
                share=row_ns / (total_ns or 1),
                min_us=int(times_ns.min()) / 1000,
                median_us=float(np.median(times_ns)) / 1000,
                max_us=int(times_ns.max()) / 1000,
                ops=found.ops,
                lines=tuple(m.Location(one.file, one.line, one.function) for one in from_lines),
                lines_us=known_ns / 1000,
                rule=found.rule,
            )
        )
    lines_us: m.Figure = m.Skipped(NO_LINES)
    if known is not None:
        lines_us = lines_ns / 1000
    # A kind without a kernel of its own is not absent where a generated kernel holds its operators;
    # a view inside one costs nothing.
    inside = {kind_of_operator(op) or m.KernelKind.OTHER for row in rows for op in row.ops}
    inside.discard(m.KernelKind.FRAMEWORK)
    return {
        "total_us": total_ns / 1000,
        "lines_us": lines_us,
        "kinds": tuple(
            m.KindTotal(kind, launched[kind], of_kind_ns[kind] / 1000)
            for kind in m.KernelKind
            if launched[kind]
        ),
        "rows": tuple(sorted(rows, key=lambda row: (-row.total_us, row.name, row.kind))),
        "generators": _generators(rows),
        "fused_kinds": tuple(kind for kind in m.KernelKind if kind in inside),
    }


def _generators(rows: Sequence[m.KernelRow]) -> tuple[m.GeneratorTotal, ...]:
    names: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    total_us: dict[str, float] = defaultdict(float)
    for row in rows:
        generator = row.generator
        if generator == "library":
            generator = library_of(row.name)
        names[generator] += 1
        counts[generator] += row.count
        total_us[generator] += row.total_us
    largest_first = sorted(total_us.items(), key=lambda total: (-total[1], total[0]))
    return tuple(
        m.GeneratorTotal(each, names[each], counts[each], us) for each, us in largest_first
    )


NOT_IN_TRACE = m.Skipped("TRACE has no call of this region")
OF_BACKWARD = m.Skipped("traces mark forward regions only")


@m.skippable
def fusion(run: RunEvidence) -> m.Fusion | m.Skipped:
    """Skipped where Inductor compiled nothing, or nobody watched it."""
    graphs = m.known(m.known(run.record.kernel_origins).graphs)
    if not graphs:
        return m.Skipped("Inductor compiled no graph")
    eager = run.whole.run(m.RunKey(run.key.strategy, m.EAGER))
    eagers: m.Figure = m.Skipped(f"{run.key.strategy} was not run in mode eager")
    if eager is not None:
        eagers = _kernels_per_step(eager)
    return m.Fusion(tuple(_graphs(run, graphs)), _kernels_per_step(run), eagers)


def _graphs(run: RunEvidence, graphs: tuple[m.GraphWork, ...]) -> Iterator[m.FusedGraph]:
    trace = run.trace()
    traced: dict[str, tuple[int, float]] = {}
    if isinstance(trace, Trace):
        traced = _regions(trace.columns, run.once(of_trace))
    copy = _copy_rate(run.whole.recording.ceilings)
    for work in graphs:
        why = NOT_IN_TRACE
        calls, us = 0, 0.0
        alike = [one for one in graphs if one.compile_id == work.compile_id and not one.backward]
        if work.backward:
            why = OF_BACKWARD
        elif len(alike) == 1:
            calls, us = traced.get(work.compile_id, (0, 0.0))
        if not calls:
            yield m.FusedGraph(work, why, why, why, why)
            continue
        rate: m.Figure = why
        if us:
            rate = work.moved_bytes / (us / calls / 1e6)
        yield m.FusedGraph(work, calls, us / calls, rate, _of_copy(rate, copy))


@m.skippable
def _copy_rate(ceilings: m.Ceilings | m.Skipped) -> m.Figure:
    every = [one.per_s for one in m.known(ceilings).measured if one.operation == m.COPY]
    not_measured = m.Skipped("the copy was not measured")
    if not every:
        return not_measured
    # a rate of zero is no ceiling
    return float(np.median(np.concatenate(every))) or not_measured


@m.skippable
def _of_copy(bytes_per_s: m.Figure, copy: m.Figure) -> float:
    return m.known(bytes_per_s) / m.known(copy)


def _regions(columns: Columns, breakdown: m.Kernels) -> dict[str, tuple[int, float]]:
    """Compile id -> calls, and microseconds of all of them."""
    device_us = None
    if isinstance(breakdown, m.KernelBreakdown) and breakdown.device == "cuda":
        device_us = {total.span: total.total_us for total in breakdown.by_region}
    found = {}
    for number, name in enumerate(columns.names):
        if name.startswith(REGION_PREFIX):
            calls = columns.name == number
            region = name.removeprefix(REGION_PREFIX)
            us = columns.lasted_ns(calls) / 1000
            if device_us is not None:
                us = device_us.get(region, 0.0)
            found[region] = int(calls.sum()), us
    return found


@m.skippable
def _kernels_per_step(run: RunEvidence) -> m.Figure:
    """On a CPU an operator may call others, and each of them has an event: that would count too
    many."""
    found = m.known(run.once(of_trace))
    if found.device != "cuda":
        return m.Skipped("a CPU run launches no GPU kernels")
    copies = ("memcpy", "memset")
    return sum(row.count for row in found.rows if row.generator not in copies) / max(1, found.steps)
