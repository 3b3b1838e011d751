"""What a reader might look for and will not find, each with its reason."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kgprof import model as m


def omissions(recording: m.Recording, reports: Sequence[m.RunReport]) -> tuple[m.Omission, ...]:
    """Of the whole recording first, then run by run in the plan's order."""
    found = list(_of_recording(recording))
    for run, report in zip(recording.runs, reports, strict=True):
        found += _of_run(run, report)
    return tuple(found)


def _of_recording(recording: m.Recording) -> Iterable[m.Omission]:
    if recording.header.interrupted:
        yield m.Omission(what="the runs that had not started", reason="kgprof was interrupted")
    if isinstance(recording.header.plan.vector_isa_probe_s, m.Skipped):
        yield m.Omission(what="vector-ISA probe", reason=recording.header.plan.vector_isa_probe_s.reason)
    on_a_card = recording.header.plan.device == "cuda" and not recording.header.options.for_a_gate
    if on_a_card and isinstance(recording.ceilings, m.Skipped):
        yield m.Omission(what="the card's ceilings", reason=recording.ceilings.reason)
    if isinstance(recording.agreement, m.Skipped):
        yield m.Omission(what="comparison of results", reason=recording.agreement.reason)


def _of_run(run: m.RunRecord, report: m.RunReport) -> Iterable[m.Omission]:
    yield from (m.Omission(what=what, reason=reason, run=run.key) for what, reason in _gaps(run, report))


def _gaps(run: m.RunRecord, report: m.RunReport) -> Iterable[tuple[str, str]]:
    """(what, reason). A derived figure is named only where its own pass was there, so that one cause is said once."""
    if run.probe_exit is not None and run.probe_exit.outcome != "ok":
        yield "the second process of this run", f"it {run.probe_exit.words}"
    passes = {
        "COMPILE pass": run.compile,
        "TIMING pass": run.timing,
        "TRACE pass": run.trace,
        "HOST pass": run.host,
        "STACK pass": run.stack,
        "MEMORY pass": run.memory,
        "KERNELS pass": run.kernels,
        "evaluation": run.evaluation,
    }
    skipped = [(what, value.reason) for what, value in passes.items() if isinstance(value, m.Skipped)]
    yield from skipped
    if run.exit.outcome != "ok" and not skipped:
        yield "the rest of this run", report.how_it_ended
    yield from _derived(run, report)


def _derived(run: m.RunRecord, report: m.RunReport) -> Iterable[tuple[str, str]]:
    timed = isinstance(run.timing, m.TimingPass)
    if timed and isinstance(report.step, m.Skipped):
        yield "ms/step", report.step.reason
    if timed and report.counts_units and isinstance(report.per_unit, m.Skipped):
        yield report.unit.time, report.per_unit.reason
    if timed and not report.is_baseline and isinstance(report.speedup, m.Skipped):
        yield "speed-up", report.speedup.reason
    if isinstance(run.timing, m.TimingPass) and run.timing.stopped_early:
        yield "further evaluations in TIMING", run.timing.stopped_early
    if isinstance(report.rounds, m.Rounds):
        yield from (("part of the rounds of TIMING", lost) for lost in report.rounds.lost)
    if isinstance(report.kernels, m.Skipped) and (
        isinstance(run.trace, m.TracePass) or isinstance(run.kernels, m.TracePass)
    ):
        yield "kernel breakdown", report.kernels.reason
    on_gpu = isinstance(report.kernels, m.KernelBreakdown) and report.kernels.device == "cuda"
    if on_gpu and isinstance(report.holistic, m.Skipped):
        yield "HolisticTraceAnalysis", report.holistic.reason
    if isinstance(run.stack, m.TracePass) and run.stack.cut:
        yield "further steps of STACK", run.stack.cut
    if isinstance(run.stack, m.TracePass) and isinstance(report.flame, m.Skipped):
        yield "host stacks", report.flame.reason
    if isinstance(report.agreement, m.Skipped):
        yield "comparison of results", report.agreement.reason
    if isinstance(report.compile, m.CompileSummary):
        yield from (("part of COMPILE", reason) for reason in report.compile.capture_unavailable)
    if isinstance(report.host, m.HostBreakdown) and report.host.rows_left_out:
        yield "further host functions", f"{report.host.rows_left_out:,} with less self time were not recorded"
    if report.log.left_out_bytes:
        yield "the middle of the log", f"{report.log.left_out_bytes:,} bytes; the Recording holds more of it"
