"""What the MEMORY pass says of each run: peaks, what a mode takes over eager, and reads per
step."""

from pathlib import PurePath

from kgprof import model as m
from kgprof.collectors import syncs, witnesses
from kgprof.reading.evidence import RunEvidence
from kgprof.wording import and_more

_NO_POOLS = m.Skipped("this Recording has no data on the pools of CUDA graphs")
_ON_A_CPU = m.Skipped("CPU allocations are not counted; the resident set is measured instead")
NAMED = 5  # lines in one note
LOW, MODERATE = 0.10, 0.25  # of what eager mode takes
MARGIN = 1.25  # of a budget, for peaks that were not seen


def summary(run: RunEvidence) -> m.MemorySummary | m.Skipped:
    """A device has a count of its own; on a CPU the whole process's memory stands for it."""
    memory = run.record.memory
    if isinstance(memory, m.Skipped):
        return memory
    unseen, events = _why_no_reads(run), run.whole.once(syncs.collect)
    on_gpu = run.whole.device == "cuda"
    pools: int | m.Skipped = _NO_POOLS if on_gpu else _ON_A_CPU
    if (
        on_gpu
        and isinstance(memory.peaks, m.MemoryPeaks)
        and isinstance(memory.peaks.graph_pool_bytes, int)
    ):
        pools = memory.peaks.taken_bytes
    mine, theirs = _peak(run), _eager_peak(run)
    both = (mine, theirs) if isinstance(mine, int) and isinstance(theirs, int) else None
    return m.MemorySummary(
        steps=max(0, len(memory.step_us) - memory.steady_from),
        peaks=memory.peaks,
        over_eager_bytes=m.first_skipped(theirs, mine) if both is None else both[0] - both[1],
        over_eager_of="taken" if isinstance(pools, int) else "allocated" if on_gpu else "resident",
        taken_bytes=pools,
        of_eager=m.first_skipped(theirs, mine) if both is None else both[1] / max(1, both[0]),
        tier=None if both is None else tier(both[0] / max(1, both[1]) - 1.0),
        budget_bytes=mine if isinstance(mine, m.Skipped) else round(mine * MARGIN),
        syncs_per_step=m.Skipped(unseen) if unseen else syncs.syncs_per_step(events, run.key),
        reads={} if unseen else syncs.reads_by_finding(events, run.key),
        warm_up_reads=() if unseen else syncs.warm_up_reads(run),
    )


def tier(over: float) -> m.MemoryTier:
    """``over``: what a run takes over eager mode, as a share of what that takes."""
    return (
        m.MemoryTier.LOW
        if over < LOW
        else m.MemoryTier.MODERATE
        if over < MODERATE
        else m.MemoryTier.HIGH
    )


def notes(summary: m.MemorySummary | m.Skipped) -> tuple[str, ...]:
    """That lines read in warm-up alone, which no figure per step has and no rule finds."""
    if isinstance(summary, m.Skipped) or not summary.warm_up_reads:
        return ()
    lines = summary.warm_up_reads
    places = [
        f"{PurePath(place.file).name}:{place.line} {place.function}".rstrip()
        for place in lines[:NAMED]
    ]
    more = and_more(lines, NAMED)
    one = "1 line syncs" if len(lines) == 1 else f"{len(lines)} lines sync"
    return (
        (
            f"{one} during warm-up only, so they count in no per-step figure and no finding: "
            f"{', '.join(places)}{more}"
        ),
    )


def _why_no_reads(run: RunEvidence) -> str:
    """Empty where every read was seen, step by step."""
    watched, script = run.once(witnesses.WITNESSES[m.Witness.READS]), run.record.script
    if isinstance(watched, m.Skipped):
        return watched.reason
    return (
        "the program has no steps to count" if script is not None and script.is_one_window else ""
    )


def _eager_peak(run: RunEvidence) -> int | m.Skipped:
    if run.key.mode == m.EAGER:
        return m.Skipped("this is the eager run")
    eager = run.whole.run(m.RunKey(strategy=run.key.strategy, mode=m.EAGER))
    if eager is None:
        return m.Skipped(f"{run.key.strategy} was not run in mode eager")
    theirs, mine = _peak(eager), _peak(run)
    if isinstance(theirs, m.Skipped):
        return mine if isinstance(mine, m.Skipped) else m.Skipped(f"eager run: {theirs.reason}")
    return theirs


def _peak(run: RunEvidence) -> int | m.Skipped:
    memory = run.record.memory
    peaks = memory if isinstance(memory, m.Skipped) else memory.peaks
    if isinstance(peaks, m.Skipped):
        return peaks
    return peaks.taken_bytes if run.whole.device == "cuda" else peaks.resident_bytes
