"""What the MEMORY pass says of each run: peaks, what a mode takes over eager, and reads per step."""

from __future__ import annotations

from pathlib import PurePath

from kgprof import model as m
from kgprof.collectors import syncs
from kgprof.reading.evidence import RunEvidence
from kgprof.wording import plural

NAMED = 5  # lines in one note
SYNC_HOOKS = "sync hooks"  # the capture of reads


def summary(run: RunEvidence) -> m.MemorySummary | m.Skipped:
    """A device has a count of its own; on a CPU the whole process's memory stands for it."""
    memory = run.record.memory
    if isinstance(memory, m.Skipped):
        return memory
    unseen, events = _why_no_reads(memory, run.record.script), run.whole.once(syncs.collect)
    return m.MemorySummary(
        steps=max(0, len(memory.step_us) - memory.steady_from),
        peaks=memory.peaks,
        over_eager_bytes=_over_eager(run),
        over_eager_of="allocated" if run.whole.device == "cuda" else "resident",
        syncs_per_step=m.Skipped(reason=unseen) if unseen else syncs.syncs_per_step(events, run.key),
        reads={} if unseen else syncs.reads_by_finding(events, run.key),
        warm_up_reads=() if unseen else syncs.warm_up_reads(run),
    )


def notes(summary: m.MemorySummary | m.Skipped) -> tuple[str, ...]:
    """That lines read in warm-up alone, which no figure per step has and no rule finds."""
    if isinstance(summary, m.Skipped) or not summary.warm_up_reads:
        return ()
    lines = summary.warm_up_reads
    places = [f"{PurePath(place.file).name}:{place.line} {place.function}".rstrip() for place in lines[:NAMED]]
    more = f" and {len(lines) - NAMED} more" if len(lines) > NAMED else ""
    one = "1 line reads" if len(lines) == 1 else f"{len(lines)} lines read"
    return (f"{one} in warm-up alone, so in no figure per step and no finding: {', '.join(places)}{more}",)


def _why_no_reads(memory: m.MemoryPass, script: m.ScriptRun | None) -> str:
    """Empty where every read was seen: half of the hooks, or half of the records, would count too few."""
    if missing := next((one for one in memory.capture_unavailable if one.capture == SYNC_HOOKS), None):
        return missing.words
    if isinstance(memory.syncs, m.Skipped):
        return memory.syncs.reason
    if memory.syncs.left_out:
        return f"{memory.syncs.left_out:,} reads are beyond what MEMORY keeps"
    if script is not None and script.is_one_window:
        return "the program has no steps to count reads by"
    if len(memory.step_us) <= memory.steady_from:
        return f"MEMORY watched {plural(len(memory.step_us), 'step')}, and warm-up takes {memory.steady_from}"
    return ""


def _over_eager(run: RunEvidence) -> int | m.Skipped:
    if run.key.mode == m.EAGER:
        return m.Skipped(reason="this run is the eager one")
    eager = run.whole.run(m.RunKey(strategy=run.key.strategy, mode=m.EAGER))
    if eager is None:
        return m.Skipped(reason=f"{run.key.strategy} was not run in mode eager")
    mine, theirs = _peak(run), _peak(eager)
    if isinstance(theirs, m.Skipped):
        return mine if isinstance(mine, m.Skipped) else m.Skipped(reason=f"of the eager run: {theirs.reason}")
    return mine if isinstance(mine, m.Skipped) else mine - theirs


def _peak(run: RunEvidence) -> int | m.Skipped:
    memory = run.record.memory
    peaks = memory if isinstance(memory, m.Skipped) else memory.peaks
    if isinstance(peaks, m.Skipped):
        return peaks
    return peaks.allocated_bytes if run.whole.device == "cuda" else peaks.resident_bytes
