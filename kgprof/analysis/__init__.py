"""From a Recording to the Profile: pure, so that any old Recording can be read again by a better rule.

No torch, no clock, no environment, no network; the only files read are the Recording's own traces.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kgprof import collectors
from kgprof import model as m
from kgprof._version import __version__
from kgprof.analysis import memory, ranks
from kgprof.analysis.checklist import checklist
from kgprof.analysis.omissions import omissions
from kgprof.analysis.rank_balance import rank_balance
from kgprof.analysis.trace_diff import differences
from kgprof.analysis.trade_off import trade_offs
from kgprof.analysis.verdict import verdict
from kgprof.collectors.accepted import EXPIRED, apply_recorded, expired_words
from kgprof.collectors.compilations import compilations
from kgprof.collectors.recompiles import ledger
from kgprof.errors import EXIT_INTERRUPTED, EXIT_NOTHING_MEASURED, EXIT_OK, EXIT_WORKLOAD, InputError
from kgprof.measures import holistic_check, host, kernels, times
from kgprof.measures.economics import economics
from kgprof.measures.host_stacks import flame_graph
from kgprof.measures.kernel_kinds import Kinds, rule_of
from kgprof.measures.rounds import rounds
from kgprof.reading import kineto, layout
from kgprof.reading.structured_trace import run_trace

_OWN_PASS = m.Skipped(reason="stacks are looked for in STACK's trace")
LOG_LIMIT_BYTES = 64 * 1024  # of each run's log in the Profile: its head and its tail, half each


def analyse(recording: m.Recording, kind_overrides: Sequence[m.KindOverride] = ()) -> m.Profile:
    """Read a Recording. Whatever cannot be read becomes Skipped with its reason; nothing is raised for a bad run.

    ``kind_overrides``: the project's own rules for kinds of kernels. Raises re.error for a pattern that is none.
    """
    header, plan, kinds = recording.header, recording.header.plan, Kinds(kind_overrides)
    across, memories = ranks.notes(recording), memory.summaries(recording)
    runs = tuple(_report(recording, run, memories[run.key], across.get(run.key, ()), kinds) for run in recording.runs)
    findings, known = _accepted(recording, collectors.findings(recording))
    weighed = trade_offs(recording, runs)
    balance, changed = rank_balance(plan.trace_files, runs), differences(plan.trace_files, runs)
    return m.Profile(
        schema_version=m.PROFILE_SCHEMA_VERSION,
        kgprof_version=__version__,
        created_utc=header.created_utc,
        workload=plan.workload,
        command=header.command,
        options=header.options,
        exit_code=_exit_code(recording),
        verdict=verdict(
            runs,
            [finding for finding in findings if not finding.accepted],
            baseline=plan.baseline,
            interrupted=_interrupted(recording),
            uncompared=_why_uncompared(recording),
            balance=balance,
            differences=changed,
            expired=[expired_words(entry) for entry in known if entry.status == EXPIRED],
        ),
        environment=plan.environment,
        device=plan.device,
        baseline=plan.baseline,
        vector_isa_probe_s=plan.vector_isa_probe_s,
        strategies=plan.strategies,
        runs=runs,
        findings=findings,
        rules=collectors.RULES,
        omissions=omissions(recording, runs),
        checklist=checklist(recording, runs, findings, weighed),
        trade_offs=weighed,
        trace_files=plan.trace_files,
        rank_balance=balance,
        differences=changed,
        accepted=known,
        kind_overrides=tuple(_with_its_kernels(override, runs) for override in kind_overrides),
    )


def _accepted(
    recording: m.Recording, findings: tuple[m.Finding, ...]
) -> tuple[tuple[m.Finding, ...], tuple[m.AcceptedFinding, ...]]:
    """A gate marks them itself; the day that counts is the one of the recording."""
    header = recording.header
    root, today = header.plan.environment.source_root, header.created_utc[:10]
    return apply_recorded(recording.accepted, findings, root=root, today=today)


def _with_its_kernels(override: m.KindOverride, runs: Sequence[m.RunReport]) -> m.KindOverride:
    rows = [row for run in runs if isinstance(run.kernels, m.KernelBreakdown) for row in run.kernels.rows]
    return msgspec.structs.replace(override, kernels=sum(row.rule == rule_of(override) for row in rows))


def _report(
    recording: m.Recording,
    run: m.RunRecord,
    memory_of_it: m.MemorySummary | m.Skipped,
    across_ranks: tuple[str, ...],
    kinds: Kinds,
) -> m.RunReport:
    baseline = recording.header.plan.baseline
    agreement, (broken_down, traced_stacks) = _agreement(recording.agreement, run.key), _kernels(recording, run, kinds)
    differs = isinstance(agreement, m.RunAgreement) and agreement.verdict == "different"
    return m.RunReport(
        key=run.key,
        is_baseline=run.key == baseline,
        exit=run.exit,
        probe_exit=run.probe_exit,
        step=times.step_time(run.timing),
        evaluation_time=times.evaluation_time(run.timing),
        unit=run.unit,
        per_unit=times.unit_time(run),
        throughput=times.throughput(times.unit_time(run), run.unit),
        speedup=times.speedup(run, _run_named(recording.runs, baseline), results_differ=differs),
        evaluation=run.evaluation,
        agreement=agreement,
        compared_with=_compared_with(recording.agreement, run.key),
        compile=_compile_summary(run),
        kernels=broken_down,
        host=host.host_functions(run.host),
        observers=times.observer_costs(run),
        memory=memory_of_it,
        log=_excerpt(run.log),
        notes=(*_trace_notes(recording, run.key), *_notes(run), *memory.notes(memory_of_it), *across_ranks),
        script=run.script,
        records_lacking=_records_lacking(run),
        holistic=_holistic(recording, run, broken_down),
        flame=_flame(recording, run, traced_stacks),
        rounds=rounds(run),
        economics=economics(recording, run),
    )


def _notes(run: m.RunRecord) -> tuple[str, ...]:
    timing = run.timing.notes if isinstance(run.timing, m.TimingPass) else ()
    return (*(run.script.notes if run.script else ()), *timing)


def _trace_notes(recording: m.Recording, key: m.RunKey) -> tuple[str, ...]:
    return tuple(note for file in recording.header.plan.trace_files if file.key == key for note in file.notes)


def _compile_summary(run: m.RunRecord) -> m.CompileSummary | m.Skipped:
    """With the stages of each compilation and the recompiles, where the Recording holds the compiler's records."""
    summary = host.compile_summary(run.compile)
    trace = run_trace(run)
    if isinstance(summary, m.Skipped) or trace is None:
        return summary
    return msgspec.structs.replace(
        summary, compilations=compilations(trace) or summary.compilations, recompiles=ledger(trace)
    )


def _records_lacking(run: m.RunRecord) -> str:
    if isinstance(run.records, m.Skipped):
        return run.records.reason
    if not run.records.left_out:
        return ""
    damaged = isinstance(run.compile, m.CompilePass) and any(
        "trace incomplete" in s for s in run.compile.capture_unavailable
    )
    why = "are damaged, cut off or beyond the limit" if damaged else "are beyond the limit"
    return f"{run.records.left_out:,} records of the compiler {why}"


def _run_named(runs: Sequence[m.RunRecord], key: m.RunKey | None) -> m.RunRecord | None:
    return next((run for run in runs if run.key == key), None)


def _agreement(agreement: m.Agreement | m.Skipped, key: m.RunKey) -> m.RunAgreement | m.Skipped:
    if isinstance(agreement, m.Skipped):
        return agreement
    found = dict(agreement.runs).get(key)
    return found if found is not None else m.Skipped(reason="the results were compared without this run")


def _compared_with(agreement: m.Agreement | m.Skipped, key: m.RunKey) -> m.RunKey | None:
    """Not always the plan's baseline: where that one left no result, another stands in for it."""
    if isinstance(agreement, m.Skipped) or agreement.baseline == key:
        return None
    found = dict(agreement.runs).get(key)
    return agreement.baseline if isinstance(found, m.RunAgreement) and found.compared else None


def _why_uncompared(recording: m.Recording) -> str:
    """Empty where the results were compared, and where nobody asked for it."""
    header = recording.header
    if not header.plan.agreement or header.options.for_a_gate or isinstance(recording.agreement, m.Agreement):
        return ""
    return recording.agreement.reason


def _kernels(
    recording: m.Recording, run: m.RunRecord, kinds: Kinds
) -> tuple[m.KernelBreakdown | m.Skipped, m.FlameGraph | m.Skipped]:
    """From KERNELS, where the C++ kernels have names; else (no such pass, or its trace is damaged) from TRACE.

    And the stacks of that trace, where it is somebody else's, which may hold some.
    """
    reasons: list[str] = []
    for name, traced in ((m.PassName.KERNELS, run.kernels), (m.PassName.TRACE, run.trace)):
        if isinstance(traced, m.Skipped):
            continue
        found, stacks = _breakdown(recording, run, name, traced, kinds)
        if isinstance(found, m.KernelBreakdown):
            return msgspec.structs.replace(found, warnings=(*reasons, *found.warnings)), stacks
        reasons.append(f"{name.upper()}: {found.reason}")
    if reasons:
        none = m.Skipped(reason="; ".join(reasons))
    else:
        none = run.trace if isinstance(run.trace, m.Skipped) else m.Skipped(reason="no pass was traced")
    return none, none


def _breakdown(
    recording: m.Recording, run: m.RunRecord, name: m.PassName, traced: m.TracePass, kinds: Kinds
) -> tuple[m.KernelBreakdown | m.Skipped, m.FlameGraph | m.Skipped]:
    try:
        trace = kineto.read(layout.trace_path(recording, run.key, name))
    except InputError as error:
        unread = m.Skipped(reason=error.message)
        return unread, unread
    taken_in = bool(recording.header.plan.trace_files)
    stacks = flame_graph(trace.columns, measured_in=name) if taken_in else _OWN_PASS
    found = kernels.breakdown(
        trace,
        device=recording.header.plan.device,
        measured_in=name,
        cpp_kernel_profile=traced.cpp_kernel_profile,
        origins=() if isinstance(run.kernel_origins, m.Skipped) else run.kernel_origins.origins,
        compiled=run.compiled_kernels,
        ceilings=recording.ceilings,
        kinds=kinds,
    )
    return found, stacks


def _flame(
    recording: m.Recording, run: m.RunRecord, of_the_trace: m.FlameGraph | m.Skipped
) -> m.FlameGraph | m.Skipped:
    """From STACK; of a trace that was taken in, from itself."""
    if recording.header.plan.trace_files:
        return of_the_trace
    if isinstance(run.stack, m.Skipped):
        return run.stack
    try:
        trace = kineto.read(layout.trace_path(recording, run.key, m.PassName.STACK))
    except InputError as error:
        return m.Skipped(reason=error.message)
    return flame_graph(trace.columns, measured_in=m.PassName.STACK)


def _holistic(
    recording: m.Recording, run: m.RunRecord, ours: m.KernelBreakdown | m.Skipped
) -> m.HolisticCheck | m.Skipped:
    """HTA's figures of TRACE beside ours, where it has been asked."""
    if recording.header.plan.device != "cuda":
        return m.Skipped(reason="a CPU run: HTA analyses what ran on a GPU")
    for missing in (run.trace, run.holistic, ours):
        if isinstance(missing, m.Skipped):
            return missing
    assert isinstance(run.holistic, m.Holistic)
    assert isinstance(ours, m.KernelBreakdown)
    # Read a second time: it takes a tenth of what HTA takes, and most Recordings have no such trace.
    return holistic_check.check(
        run.holistic, ours, kineto.read(layout.trace_path(recording, run.key, m.PassName.TRACE)).columns
    )


def _excerpt(log: str) -> m.LogExcerpt:
    """Head and tail: the first error and the last words of a child are both worth more than the middle."""
    data = log.encode("utf-8", errors="replace")
    if len(data) <= LOG_LIMIT_BYTES:
        return m.LogExcerpt(text=data.decode("utf-8"), left_out_bytes=0)
    half = LOG_LIMIT_BYTES // 2
    head, tail = data[:half].decode("utf-8", errors="ignore"), data[-half:].decode("utf-8", errors="ignore")
    left_out = len(data) - len(head.encode()) - len(tail.encode())
    return m.LogExcerpt(text=f"{head}\n[... {left_out:,} bytes left out ...]\n{tail}", left_out_bytes=left_out)


def _exit_code(recording: m.Recording) -> int:
    """The first that applies of the documented order."""
    if _interrupted(recording):
        return EXIT_INTERRUPTED
    if any(ended.outcome != "ok" for run in recording.runs for ended in _ends(run)):
        return EXIT_WORKLOAD
    if not any(collectors.measured(run, recording.header.options) for run in recording.runs):
        return EXIT_NOTHING_MEASURED
    return EXIT_OK


def _interrupted(recording: m.Recording) -> bool:
    """Also when kgprof itself was killed and could not write it down: then a run has not ended."""
    return recording.header.interrupted or any(
        ended.outcome == "interrupted" for run in recording.runs for ended in _ends(run)
    )


def _ends(run: m.RunRecord) -> tuple[m.Exit, ...]:
    """Of all its processes; a round of a run that has no TIMING was none."""
    further = (record.exit for record in run.rounds if isinstance(run.timing, m.TimingPass))
    return tuple(ended for ended in (run.exit, run.probe_exit, *further) if ended is not None)
