"""What a reader might look for and will not find, each with its reason."""

from collections.abc import Iterable
from typing import Any

from kgprof import model as m

_IN_ORDER = [
    m.PassName(name)
    for name in ("compile", "timing", "trace", "host", "stack", "memory", "kernels")
]


def omissions(recording: m.Recording, reports: m.Runs) -> tuple[m.Omission, ...]:
    """Of the whole recording first, then run by run in the plan's order."""
    header = recording.header
    on_a_card = header.plan.device == "cuda" and not header.options.for_a_gate
    of_all = (
        ("the runs that had not started", header.interrupted and "kgprof was interrupted"),
        ("vector-ISA probe", header.plan.vector_isa_probe_s),
        ("the GPU's peak rates", on_a_card and recording.ceilings),
        ("comparison of results", recording.agreement),
    )
    of_runs = (
        m.Omission(what, reason, run.key)
        for run, report in zip(recording.runs, reports, strict=True)
        for what, reason in _reasons(_gaps(run, report))
    )
    return (*(m.Omission(*gap) for gap in _reasons(of_all)), *of_runs)


def _reasons(gaps: Iterable[tuple[str, Any]]) -> Iterable[tuple[str, str]]:
    """Why each is not there: it is Skipped, or the reason itself; whatever else it is, nothing is
    missing."""
    for what, value in gaps:
        match value:
            case m.Skipped(reason=reason) | (str() as reason) if reason:
                yield what, reason


def _gaps(run: m.RunRecord, report: m.RunReport) -> Iterable[tuple[str, Any]]:
    """A derived figure is named only where its own pass was there, so that one cause is said
    once."""
    if run.probe_exit is not None and run.probe_exit.outcome != m.Outcome.OK:
        yield "the second process of this run", f"it {run.probe_exit.words}"
    passes = {f"{name.upper()} pass": run.left_by(name) for name in _IN_ORDER} | {
        "evaluation": run.evaluation
    }
    yield from passes.items()
    if run.exit.outcome != m.Outcome.OK and not any(
        isinstance(value, m.Skipped) for value in passes.values()
    ):
        yield "the rest of this run", report.how_it_ended
    if isinstance(run.timing, m.TimingPass):
        yield "ms/step", report.step
        yield report.unit.time, report.counts_units and report.per_unit
        yield "speed-up", run.script is None and not report.is_baseline and report.speedup
        yield "further evaluations in TIMING", run.timing.stopped_early
    if isinstance(report.rounds, m.Rounds):
        yield from (("part of the rounds of TIMING", lost) for lost in report.rounds.lost)
    if isinstance(run.trace, m.TracePass) or isinstance(run.kernels, m.TracePass):
        yield "kernel breakdown", report.kernels
    if report.gpu_kernels is not None:
        yield "HolisticTraceAnalysis", report.holistic
    if isinstance(run.stack, m.TracePass):
        yield "further steps of STACK", run.stack.cut
        yield "host stacks", report.flame
    yield "comparison of results", report.agreement
    if isinstance(report.compile, m.CompileSummary):
        yield from (("part of COMPILE", lost.words) for lost in report.compile.capture_unavailable)
        never_ran = (
            f"no call ran it, so nothing is said about it: {m.functions_of(report.compile.unused)}"
        )
        yield "code compiled while the workload was loaded", report.compile.unused and never_ran
    if isinstance(run.memory, m.MemoryPass):
        yield from (("part of MEMORY", lost.words) for lost in run.memory.capture_unavailable)
    yield "the run without kgprof's listeners", run.control
    yield "torch's settings that a fix names", run.setting_trials
    if isinstance(report.host, m.HostBreakdown) and report.host.rows_left_out:
        yield (
            "further host functions",
            f"{report.host.rows_left_out:,} with less self time were not recorded",
        )
    if report.log.left_out_bytes:
        yield (
            "the middle of the log",
            f"{report.log.left_out_bytes:,} bytes; the Recording holds more of it",
        )
