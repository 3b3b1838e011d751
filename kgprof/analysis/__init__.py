"""From a Recording to the Profile: pure, so that any old Recording can be read again by a better
rule.

No torch, no clock, no environment, no network; what files of a Recording are read, kgprof.reading
reads.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import PurePath

from msgspec.structs import replace

from kgprof import collectors, coverage, limits
from kgprof import model as m
from kgprof._version import __version__
from kgprof.analysis import memory, ranks
from kgprof.analysis.actions import actions
from kgprof.analysis.checklist import checklist
from kgprof.analysis.hangs import hang
from kgprof.analysis.omissions import omissions
from kgprof.analysis.ranks import rank_balance
from kgprof.analysis.trace_diff import differences
from kgprof.analysis.trade_off import trade_offs
from kgprof.analysis.verdict import verdict
from kgprof.analysis.whole_run import whole_run
from kgprof.collectors.compile import caches, recompiles
from kgprof.collectors.compile.caches import tallies
from kgprof.collectors.compile.compilations import compilations
from kgprof.collectors.compile.runs_eagerly import calls_of_compiled
from kgprof.collectors.time import input_pipeline, syncs
from kgprof.collectors.trust import accepted, witnesses
from kgprof.errors import EXIT_INTERRUPTED, EXIT_NOTHING_MEASURED, EXIT_OK, EXIT_WORKLOAD
from kgprof.measures import (
    holistic_check,
    host_stacks,
    kernels,
    step_timeline,
    times,
    traced_steps,
)
from kgprof.measures.compiled_work import compiled_work
from kgprof.measures.economics import economics
from kgprof.measures.host_time import training_phases
from kgprof.measures.kernel_kinds import kinds_of, rule_of
from kgprof.measures.kernels import fusion
from kgprof.measures.paid_once import paid_once
from kgprof.measures.times import rounds, step_series
from kgprof.reading import while_loading
from kgprof.reading.evidence import Evidence, RunEvidence

# graphs and generated code in the Profile: how many of a run, and of each
TEXTS, TEXT_CHARACTERS = 24, 12_000
LOG_LIMIT_BYTES = 64 * 1024  # of each run's log in the Profile: its head and its tail, half each


def analyse(recording: m.Recording, kind_overrides: Sequence[m.KindOverride] = ()) -> m.Profile:
    """Read a Recording. Whatever cannot be read becomes Skipped with its reason; nothing is raised
    for a bad run.

    ``kind_overrides``: the project's own rules for kinds of kernels. Raises re.error for a pattern
    that is none.
    """
    recording = while_loading.apart(recording)
    evidence = Evidence(recording, kind_overrides)
    header = recording.header
    plan = header.plan
    evidence.once(kinds_of)
    across = ranks.notes(evidence)
    runs = times.with_speedups([_report(run, across.get(run.key, ())) for run in evidence.runs])
    # A gate marks what it accepts itself; the day that counts is the one of the recording.
    findings, entries = accepted.apply(
        recording.accepted,
        collectors.findings(evidence),
        root=plan.environment.source_root,
        today=header.created_utc[:10],
    )
    covered = witnesses.coverage(evidence, collectors.RULES, findings)
    runs = tuple(
        _with_limits(run, seen, findings) for run, seen in zip(runs, evidence.runs, strict=True)
    )
    weighed = trade_offs(evidence, runs)
    balance = rank_balance(evidence, runs, findings)
    changed = differences(plan.trace_files, runs)
    late = None
    if balance is not None:
        late = balance.straggler or balance.last
    next_actions = actions(evidence, runs, findings, late)
    exit_code = _exit_code(recording)
    profile = m.Profile(
        schema_version=m.PROFILE_SCHEMA_VERSION,
        kgprof_version=__version__,
        created_utc=header.created_utc,
        workload=plan.workload,
        command=header.command,
        options=header.options,
        exit_code=exit_code,
        verdict=verdict(
            runs,
            [finding for finding in findings if not finding.accepted],
            baseline=plan.baseline,
            interrupted=exit_code == EXIT_INTERRUPTED,
            uncompared=_uncompared(recording),
            balance=balance,
            differences=changed,
            expired=[
                accepted.expired_words(entry)
                for entry in entries
                if entry.status is m.AcceptedStatus.EXPIRED
            ],
            actions=next_actions,
            workload=plan.workload,
            hang=hang(evidence),
            untraced=_untraced(header, runs),
        ),
        environment=plan.environment,
        device=plan.device,
        baseline=plan.baseline,
        vector_isa_probe_s=plan.vector_isa_probe_s,
        strategies=plan.strategies,
        runs=runs,
        findings=findings,
        rules=collectors.RULES,
        coverage=covered,
        omissions=(*omissions(recording, runs), *coverage.gaps(covered)),
        actions=next_actions,
        checklist=checklist(evidence, runs, findings, weighed, covered),
        trade_offs=weighed,
        trace_files=plan.trace_files,
        sources=_sources(evidence),
        rank_balance=balance,
        differences=changed,
        accepted=entries,
        in_turn=header.in_turn,
        kind_overrides=_overridden(kind_overrides, runs),
    )
    evidence.forget()
    return profile


def _uncompared(recording: m.Recording) -> str:
    """Say why results were not compared; empty where they were, or where nobody asked for it."""
    header, agreement = recording.header, recording.agreement
    if header.plan.agreement and not header.options.for_a_gate and isinstance(agreement, m.Skipped):
        return agreement.reason
    return ""


def _with_limits(run: m.RunReport, evidence: RunEvidence, findings: m.Findings) -> m.RunReport:
    """Account for the run's step, with what its syncs were measured to cost by line."""
    waits: dict[tuple[m.LimitKind, m.Location | None], float] = {}
    for finding in findings:
        is_sync = collectors.rule_of(finding).topic is m.Topic.SYNCS
        cost = finding.cost
        if finding.run != run.key or not is_sync or isinstance(cost, m.Skipped):
            continue
        if cost.unit == "us/step":
            limit = m.LimitKind.SYNC
            if finding.rule == syncs.OWN_CLOCK.id:
                limit = m.LimitKind.CLOCK
            at = limit, finding.location
            waits[at] = waits.get(at, 0.0) + cost.value
    unlike = evidence.once(traced_steps.unlike)
    loader_us = evidence.once(input_pipeline.loader_us)
    return replace(run, limits=limits.limits(run, waits, unlike, loader_us))


def _overridden(overrides: Sequence[m.KindOverride], runs: m.Runs) -> tuple[m.KindOverride, ...]:
    """With the number of rows that each decided."""
    decided: Counter[str] = Counter()
    for run in runs:
        if isinstance(run.kernels, m.KernelBreakdown):
            decided.update(row.rule for row in run.kernels.rows)
    return tuple(replace(own, kernels=decided[rule_of(own)]) for own in overrides)


def _sources(evidence: Evidence) -> tuple[m.ProjectSource, ...]:
    """The project's files that any run brought along."""
    files = {name: file for run in evidence.runs for name, file in run.source.own.items()}
    sources = []
    for name, file in sorted(files.items()):
        text: str | m.Skipped = m.Skipped(file.left_out or "not recorded")
        if file.text is not None:
            text = file.text
        sources.append(m.ProjectSource(file=name, sha256=file.sha256, text=text))
    return tuple(sources)


def _untraced(header: m.RecordingHeader, runs: m.Runs) -> str:
    """Why the one run on a GPU has no TRACE, though it was asked for."""
    asked = header.options.wants(m.PassName.TRACE)
    if header.plan.device != "cuda" or len(runs) != 1 or not asked:
        return ""
    if isinstance(runs[0].kernels, m.Skipped):
        return runs[0].kernels.reason
    return ""


def _exit_code(recording: m.Recording) -> int:
    """The first that applies, of all processes; a round of a run that has no TIMING was none."""
    outcomes: set[str] = set()
    for run in recording.runs:
        further = (record.exit for record in run.rounds if isinstance(run.timing, m.TimingPass))
        outcomes.update(
            ended.outcome for ended in (run.exit, run.probe_exit, *further) if ended is not None
        )
    # A run that never ended is interrupted: kgprof itself may have been killed and could not write
    # it down.
    if recording.header.interrupted or m.Outcome.INTERRUPTED in outcomes:
        return EXIT_INTERRUPTED
    if outcomes - {m.Outcome.OK}:
        return EXIT_WORKLOAD
    if any(collectors.measured(run, recording.header.options) for run in recording.runs):
        return EXIT_OK
    return EXIT_NOTHING_MEASURED


def _report(run: RunEvidence, across_ranks: tuple[str, ...]) -> m.RunReport:
    record, recording = run.record, run.whole.recording
    plan = recording.header.plan
    agreement, compared_with = _agreement(recording.agreement, run.key)
    remembered = run.once(memory.summary)
    notes = [note for file in plan.trace_files if file.key == run.key for note in file.notes]
    if record.script is not None:
        notes += record.script.notes
    slow_first = None
    if isinstance(record.timing, m.TimingPass):
        slow_first = record.timing.slow_first
        notes += record.timing.notes
        if slow_first:
            notes.append(times.slow_first_words(slow_first))
    unlike = times.unlike_steps(record)
    if isinstance(unlike, m.Skipped):
        unlike = ""
    phases = run.once(training_phases)
    if isinstance(phases, m.TrainingPhases) and phases.backward_passes > 1:
        passes = f"at least {phases.backward_passes} backward passes per traced step"
        notes.append(
            f"gradient accumulation: {passes}; a step, and so its time, includes all of them"
        )
    return m.RunReport(
        key=run.key,
        is_baseline=run.key == plan.baseline,
        exit=_ended(record),
        probe_exit=record.probe_exit,
        step=times.step_time(record.timing),
        evaluation_time=times.evaluation_time(record.timing),
        unit=record.unit,
        per_unit=times.unit_time(record),
        throughput=times.throughput(times.unit_time(record), record.unit),
        speedup=times.NO_BASELINE,
        cpu=times.cpu_time(record.timing),
        load=times.load(record.timing, recording.header.load),
        evaluation=record.evaluation,
        agreement=agreement,
        compared_with=compared_with,
        compile=_compile_summary(run),
        kernels=run.once(kernels.shown),
        fusion=run.once(fusion),
        host=_host_functions(record.host),
        observers=times.observer_costs(record),
        memory=remembered,
        log=_excerpt(record.log),
        notes=(*notes, *across_ranks),
        script=record.script,
        holistic=run.once(holistic_check.in_trace),
        flame=run.once(host_stacks.shown),
        rounds=rounds(record),
        series=step_series(record),
        long_steps=_long_steps(run),
        unlike_steps=unlike,
        memory_curve=run.once(step_timeline.shown),
        account=_account(record),
        whole=whole_run(run.whole, run),
        slow_first=slow_first,
        work=run.once(compiled_work),
        economics=run.once(economics),
        phases=phases,
    )


@m.otherwise(None)
def _long_steps(run: RunEvidence) -> m.LongSteps | None:
    """Of TIMING; without it of those that a script took under the listeners alone."""
    if isinstance(run.record.timing, m.TimingPass):
        return times.long_steps(run.record.timing.every_us)
    return times.long_steps(m.known(run.once(paid_once)).unprofiled)


def _ended(run: m.RunRecord) -> m.Exit:
    """What raises without listeners as well is the program's own."""
    control = run.control
    if isinstance(control, m.Control) and control.exit.outcome is m.Outcome.RAISED:
        return replace(run.exit, through=())
    return run.exit


@m.skippable
def _account(run: m.RunRecord) -> m.ScriptAccount | m.Skipped:
    """The rerun's without listeners, if there was one. That with them is no account of a program
    which they ended."""
    if run.script is None:
        return m.Skipped("only a script is run from its first line to its end")
    if isinstance(run.timing, m.TimingPass) and isinstance(run.timing.account, m.ScriptAccount):
        return run.timing.account
    if run.control is not None:
        m.known(run.compile)  # skipped where they ended it
    return run.script.account


def _agreement(
    agreement: m.Agreement | m.Skipped, key: m.RunKey
) -> tuple[m.RunAgreement | m.Skipped, m.RunKey | None]:
    """Of one run, and what it was compared with where that is not the plan's baseline, which left
    no result."""
    if isinstance(agreement, m.Skipped):
        return agreement, None
    left_out = m.Skipped("this run was left out when results were compared")
    of_run = dict(agreement.runs).get(key, left_out)
    if isinstance(of_run, m.RunAgreement) and of_run.compared and agreement.baseline != key:
        return of_run, agreement.baseline
    return of_run, None


def _first_call_s(compiled: m.CompilePass, script: m.ScriptRun | None) -> m.Figure:
    if not compiled.call_us:
        return m.Skipped("calls were not observed, only the compilations in them")
    if script and script.is_one_window:
        return m.Skipped("the program has no steps")
    if script and script.left_out:
        return m.Skipped("where the first optimizer step began is not known")
    return compiled.call_us[0] / 1e6


@m.skippable
def _compile_summary(run: RunEvidence) -> m.CompileSummary | m.Skipped:
    """The first call on a cold cache and those after warm-up; stages and recompiles by the
    compiler's records."""
    compiled, trace = m.known(run.record.compile), run.compiler
    if not compiled.call_us and compiled.calls is None:
        return m.Skipped("COMPILE has no call")
    steady = times.spread(compiled.watched_us, "us", m.PassName.COMPILE)
    script = run.record.script
    every = _of_all_steps(run)
    if isinstance(every, m.Spread):
        steady = every  # the first ones may be of another kind: a program may train otherwise later
    elif script is not None and isinstance(run.record.trace, m.TracePass):
        # Few steps come before the profiler; as it only slows a step down, the shorter of both is
        # nearer. Behind those is the one in which it starts. Of another kind they say nothing, and
        # a run that was stopped does not tell.
        steps = enumerate(run.record.trace.step_us, len(compiled.call_us) + 1)
        is_alike = not (script.traced or run.record.exit.is_early)
        without = [us for step, us in steps if is_alike and step not in compiled.compiled_in]
        traced = times.spread(without, "us", m.PassName.TRACE)
        known = [each for each in (steady, traced) if isinstance(each, m.Spread)]
        steady = min(known, key=lambda each: each.median, default=steady)
    if compiled.call_us and isinstance(steady, m.Skipped):
        steady = m.Skipped("no step came after warm-up")
        if compiled.compilations:
            steady = m.Skipped("no step came after warm-up without a compilation")
    summary = m.CompileSummary(
        first_call_s=_first_call_s(compiled, run.record.script),
        steady=steady,
        compilations=(trace and compilations(trace)) or compiled.compilations,
        capture_unavailable=(*compiled.capture_unavailable, *_changed(run)),
        while_loading_s=compiled.while_loading_s,
        unused=compiled.unused,
        cache=compiled.cache,
        compiling=compiled.compiling,
        autotuned=compiled.autotuned,
        stages=_stages(run.record.kernel_origins),
    )
    if trace is None:
        return summary
    return replace(
        summary,
        texts=tuple(map(_beginning, trace.all.texts[:TEXTS])),
        recompiles=recompiles.ledger(run.whole.once(recompiles.collect), trace),
        caches=tallies(run.whole.once(caches.collect), run.key),
        compiled_calls=calls_of_compiled(run.whole, trace),
    )


@m.skippable
def _stages(origins: m.KernelOrigins | m.Skipped) -> m.TritonStages | m.Skipped:
    return m.known(origins).stages


@m.skippable
def _of_all_steps(run: RunEvidence) -> m.Time:
    """All steps of a script in which torch did not compile, but for those that torch.profiler made
    longer."""
    return times.spread(m.known(run.once(paid_once)).unprofiled, "us", m.PassName.MEMORY)


def _changed(run: RunEvidence) -> tuple[m.Unavailable, ...]:
    """What failed while kgprof listened, and compiles without it: then what else was seen is of
    another program."""
    for failure in run.changed_by_listening[:1]:
        place = f"{failure.function} ({PurePath(failure.file).name}:{failure.first_line})"
        why = (
            f"kgprof's listening changed the program: the backend failed for {place} "
            f"({failure.error}), and compiles it when nothing listens"
        )
        return (m.Unavailable("compilation", why),)
    return ()


def _beginning(text: m.CompiledText) -> m.CompiledText:
    cut = max(0, len(text.text) - TEXT_CHARACTERS)
    return replace(text, text=text.text[:TEXT_CHARACTERS], cut=text.cut + cut)


@m.skippable
def _host_functions(profiled: m.HostPass | m.Skipped) -> m.HostBreakdown | m.Skipped:
    """cProfile's rows, by self time."""
    host = m.known(profiled)
    if not host.rows:
        return m.Skipped("cProfile saw no function")
    return m.HostBreakdown(
        steps=len(host.step_us),
        total_self_us=host.total_self_us or sum(row.self_us for row in host.rows),
        rows=tuple(
            sorted(host.rows, key=lambda row: (-row.self_us, row.file, row.line, row.function))
        ),
        rows_left_out=host.rows_left_out,
    )


def _excerpt(log: str) -> m.LogExcerpt:
    """Head and tail: the first error and the last words of a child are both worth more than the
    middle."""
    data = log.encode("utf-8", errors="replace")
    if len(data) <= LOG_LIMIT_BYTES:
        return m.LogExcerpt(data.decode("utf-8"), 0)
    half = LOG_LIMIT_BYTES // 2
    head = data[:half].decode("utf-8", errors="ignore")
    tail = data[-half:].decode("utf-8", errors="ignore")
    left_out = len(data) - len(head.encode()) - len(tail.encode())
    return m.LogExcerpt(f"{head}\n[... {left_out:,} bytes left out ...]\n{tail}", left_out)
