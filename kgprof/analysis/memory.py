"""What the MEMORY pass says of each run: peaks, what a mode takes over eager, and reads per step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath

from kgprof import model as m
from kgprof.collectors import syncs
from kgprof.collectors.syncs import Sync

NAMED = 5  # lines in one note
SYNC_HOOKS = "capture sync hooks unavailable"


def summaries(recording: m.Recording) -> Mapping[m.RunKey, m.MemorySummary | m.Skipped]:
    events = syncs.collect(recording)
    return {run.key: summary(run, recording.runs, events, recording.header.plan.device) for run in recording.runs}


def summary(
    run: m.RunRecord, runs: Sequence[m.RunRecord], events: Sequence[Sync], device: str
) -> m.MemorySummary | m.Skipped:
    """``events``: of all runs. A device has a count of its own; on a CPU the whole process's memory stands for it."""
    if isinstance(run.memory, m.Skipped):
        return run.memory
    unseen = _why_no_reads(run.memory)
    return m.MemorySummary(
        steps=max(0, len(run.memory.step_us) - run.memory.steady_from),
        peaks=run.memory.peaks,
        over_eager_bytes=_over_eager(run, runs, device),
        over_eager_of=_which_peak(device),
        syncs_per_step=m.Skipped(reason=unseen) if unseen else syncs.syncs_per_step(events, run.key),
        reads={} if unseen else syncs.reads_by_finding(events, run.key),
        warm_up_reads=() if unseen else syncs.warm_up_reads(run, device),
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


def _why_no_reads(memory: m.MemoryPass) -> str:
    """Empty where every read was seen: half of the hooks, or half of the records, would count too few."""
    if missing := next((line for line in memory.capture_unavailable if line.startswith(SYNC_HOOKS)), ""):
        return missing
    if isinstance(memory.syncs, m.Skipped):
        return memory.syncs.reason
    if memory.syncs.left_out:
        return f"{memory.syncs.left_out:,} reads are beyond what MEMORY keeps"
    if len(memory.step_us) <= memory.steady_from:
        calls = "1 step" if len(memory.step_us) == 1 else f"{len(memory.step_us)} steps"
        return f"MEMORY watched {calls}, and warm-up takes {memory.steady_from}"
    return ""


def _which_peak(device: str) -> str:
    return "allocated" if device == "cuda" else "resident"


def _over_eager(run: m.RunRecord, runs: Sequence[m.RunRecord], device: str) -> int | m.Skipped:
    if run.key.mode == m.EAGER:
        return m.Skipped(reason="this run is the eager one")
    eager = next((other for other in runs if other.key == m.RunKey(strategy=run.key.strategy, mode=m.EAGER)), None)
    if eager is None:
        return m.Skipped(reason=f"{run.key.strategy} was not run in mode eager")
    mine, theirs = _peak(run.memory, device), _peak(eager.memory, device)
    if isinstance(mine, m.Skipped):
        return mine
    if isinstance(theirs, m.Skipped):
        return m.Skipped(reason=f"of the eager run: {theirs.reason}")
    return mine - theirs


def _peak(memory: m.MemoryPass | m.Skipped, device: str) -> int | m.Skipped:
    peaks = memory if isinstance(memory, m.Skipped) else memory.peaks
    if not isinstance(peaks, m.MemoryPeaks):
        return peaks
    return peaks.allocated_bytes if device == "cuda" else peaks.resident_bytes
