"""What a budget can be put on: how each metric is counted from a Profile, and when it was not observed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kgprof import model as m
from kgprof.collectors import caches, cuda_graphs, graph_breaks, recompiles, rule_of, skipped_frames, syncs
from kgprof.wording import plural

SITES, EVENTS, SECONDS, READS = "sites", "events", "s", "syncs/step"
FRACTIONAL = (SECONDS, READS)  # units whose limits need not be whole numbers
# Without these, no compilation is seen at all; of the others each has a second source.
INDISPENSABLE = ("structured trace", "compilation")  # captures without which COMPILE shows nothing
CUDAGRAPH_MODES = ("reduce-overhead", "max-autotune", "as-is")  # those in which CUDA graphs can have been asked for


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """``rules`` are the findings that it counts: by place (sites) or by how often they happened (events)."""

    name: str
    unit: str
    rules: tuple[str, ...] = ()
    generated_code: bool = False  # says nothing about a run in which another backend stood in for Inductor
    cuda_only: bool = False
    in_memory: bool = False  # counted in MEMORY, whatever was compiled
    default: float | None = None  # the limit where none was given


METRICS = (
    Metric(name="graph-breaks", unit=SITES, rules=(graph_breaks.GRAPH_BREAK.id,), default=0),
    Metric(name="skipped-frames", unit=SITES, rules=(skipped_frames.SKIPPED_FRAME.id,), default=0),
    Metric(name="recompiles", unit=EVENTS, rules=tuple(rule.id for rule in recompiles.RULES), default=0),
    Metric(name="cache-bypasses", unit=SITES, rules=(caches.CACHE_BYPASSED.id,), generated_code=True),
    Metric(name="cudagraph-skips", unit=SITES, rules=(cuda_graphs.SKIPPED.id,), generated_code=True, cuda_only=True),
    Metric(name="compile-seconds", unit=SECONDS, generated_code=True),
    Metric(name="syncs-per-step", unit=READS, rules=tuple(rule.id for rule in syncs.WAITING), in_memory=True),
)
BY_NAME = {metric.name: metric for metric in METRICS}


def count(
    metric: Metric, run: m.RunReport, findings: Sequence[m.Finding], profile: m.Profile, *, limit: float
) -> float | m.Skipped:
    """The metric over one run, from ``findings`` (those that are not accepted); a number only if it was observed.

    Where it is a lower bound, it is a number only above ``limit``.
    """
    if reason := why_not_observed(metric, run, profile):
        return m.Skipped(reason=reason)
    if not metric.rules:
        assert isinstance(run.compile, m.CompileSummary)
        durations = [compilation.duration_s for compilation in run.compile.compilations]
        unknown = [duration for duration in durations if isinstance(duration, m.Skipped)]
        return unknown[0] if unknown else sum(d for d in durations if not isinstance(d, m.Skipped))
    mine = [finding for finding in findings if finding.run == run.key and counts(metric, finding)]
    if metric.in_memory:  # an accepted read is off the number
        if isinstance(run.memory, m.Skipped):
            return run.memory
        if isinstance(run.memory.syncs_per_step, m.Skipped):
            return run.memory.syncs_per_step
        return math.fsum(run.memory.reads.get(name, 0.0) for name in {finding.fingerprint for finding in mine})
    number = float(sum(finding.count for finding in mine) if metric.unit == EVENTS else len(mine))
    if metric.unit == EVENTS and number <= limit and (unjudged := _recompiles_of_unknown_calls(run, profile)):
        return m.Skipped(reason=unjudged)
    return number


def _recompiles_of_unknown_calls(run: m.RunReport, profile: m.Profile) -> str:
    """Recompiles that may have been warm-up, where no call was told from another: then there is no number to judge."""
    if run.script is None or run.script.steps:
        return ""
    late = recompiles.IN_STEADY_STATE.id
    notes = [f for f in profile.findings if f.run == run.key and f.rule == late and f.level is m.Level.NOTE]
    total = sum(note.count for note in notes)
    return (
        f"{plural(total, 'recompile')}, but calls are not in this recording: they may belong to warm-up"
        if total
        else ""
    )


def counts(metric: Metric, finding: m.Finding) -> bool:
    return finding.rule in metric.rules and finding.counts


# ---------------------------------------------------------------- why a metric was not observed


def why_not_observed(metric: Metric, run: m.RunReport, profile: m.Profile) -> str:
    """Empty where it was."""
    if run.exit.outcome != "ok":
        return f"the run {run.exit.words}"
    if metric.in_memory:
        if run.probe_exit is not None and run.probe_exit.outcome != "ok":
            return f"its second process {run.probe_exit.words}"
    elif isinstance(run.compile, m.Skipped):
        return run.compile.reason
    elif lacking := nothing_captured(run) or (run.records_lacking if metric.rules else ""):
        return lacking
    elif compiled_nothing(run, profile.findings):
        return "nothing was compiled"
    if metric.cuda_only and profile.device != "cuda":
        return "CUDA graphs are not observable on a CPU run"
    if metric.cuda_only and run.key.mode not in CUDAGRAPH_MODES:
        return f"mode {run.key.mode} does not request CUDA graphs"
    missing = [rule for rule in metric.rules if rule not in {known.id for known in profile.rules}]
    if missing:
        return f"this kgprof has no collector for {', '.join(missing)}"
    if profile.options.backend and metric.generated_code:
        return f"backend {profile.options.backend} generates no code"
    return _no_steady_state(metric, run, profile)


def nothing_captured(run: m.RunReport) -> str:
    """Which capture was missing where COMPILE could show nothing; empty where none was."""
    missing = () if isinstance(run.compile, m.Skipped) else run.compile.capture_unavailable
    return next((one.words for one in missing if one.capture in INDISPENSABLE and not one.incomplete), "")


def _no_steady_state(metric: Metric, run: m.RunReport, profile: m.Profile) -> str:
    """Of a script, which makes as many steps as it likes; what did recompile in them counts all the same."""
    if metric.name != "recompiles" or run.script is None or run.script.steps > profile.options.warmup:
        return ""
    if not run.script.counted:  # a TORCH_TRACE directory: no step could be counted, but every recompile is in it
        return ""
    if any(finding.run == run.key and counts(metric, finding) for finding in profile.findings):
        return ""
    return f"the program made {plural(run.script.steps, 'step')}, and --warmup is {profile.options.warmup}"


def compiled_nothing(run: m.RunReport, findings: Sequence[m.Finding]) -> bool:
    """Neither a compilation nor a finding about one: such a run looks like a clean one and is none."""
    if isinstance(run.compile, m.Skipped):
        return False
    about_compilation = (m.Topic.COMPILATION, m.Topic.CUDA_GRAPHS)
    spoken_of = any(f.run == run.key and rule_of(f).topic in about_compilation for f in findings)
    return not run.compile.compilations and not spoken_of
