"""What the MEMORY pass says of each run: peaks, what a mode takes over eager, and reads per
step."""

from collections.abc import Callable
from pathlib import PurePath
from typing import NamedTuple

from kgprof import model as m
from kgprof.collectors import cuda_graphs, syncs, witnesses
from kgprof.reading.evidence import RunEvidence
from kgprof.wording import and_more

_ON_A_CPU = m.Skipped("CPU allocations are not counted; the resident set is measured instead")
NAMED = 5  # lines in one note
LOW, MODERATE = 0.10, 0.25  # of what eager mode takes
MARGIN = 1.25  # of a budget, for peaks that were not seen


def summary(run: RunEvidence) -> m.MemorySummary | m.Skipped:
    """A device has a count of its own; on a CPU the whole process's memory stands for it."""
    memory = run.record.memory
    if isinstance(memory, m.Skipped):
        return memory
    unseen = _why_no_reads(run)
    events = run.whole.once(syncs.collect)
    on_gpu = run.whole.device == "cuda"
    taken = _taken(run)
    beside = over = _beside_eager(run, _taken)
    over_of = "taken" if on_gpu else "resident"
    if on_gpu and isinstance(taken, m.Skipped):
        over = _beside_eager(run, _allocated)
        over_of = "allocated"
    of_eager: float | m.Skipped
    if isinstance(beside, m.Skipped):
        of_eager, overhead = beside, None
    else:
        of_eager, overhead = beside.eager / max(1, beside.own), tier(beside.share_over)
    return m.MemorySummary(
        steps=max(0, len(memory.step_us) - memory.steady_from),
        peaks=memory.peaks,
        over_eager_bytes=over if isinstance(over, m.Skipped) else over.own - over.eager,
        over_eager_of=over_of,
        taken_bytes=taken if on_gpu else _ON_A_CPU,
        of_eager=of_eager,
        tier=overhead,
        budget_bytes=taken if isinstance(taken, m.Skipped) else round(taken * MARGIN),
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
    watched = run.once(witnesses.WITNESSES[m.Witness.READS])
    if isinstance(watched, m.Skipped):
        return watched.reason
    script = run.record.script
    return "the program has no steps to count" if script and script.is_one_window else ""


class _Beside(NamedTuple):
    """The same peak of a run and of its strategy in mode eager."""

    own: int
    eager: int

    @property
    def share_over(self) -> float:
        return self.own / max(1, self.eager) - 1.0


def _beside_eager(
    run: RunEvidence, peak: Callable[[RunEvidence], int | m.Skipped]
) -> _Beside | m.Skipped:
    if run.key.mode == m.EAGER:
        return m.Skipped("this is the eager run")
    eager = run.whole.run(m.RunKey(strategy=run.key.strategy, mode=m.EAGER))
    if eager is None:
        return m.Skipped(f"{run.key.strategy} was not run in mode eager")
    own, theirs = peak(run), peak(eager)
    if isinstance(own, m.Skipped):
        return own
    if isinstance(theirs, m.Skipped):
        return m.Skipped(f"eager run: {theirs.reason}")
    return _Beside(own, theirs)


def _taken(run: RunEvidence) -> int | m.Skipped:
    """What the run keeps from everybody else. Of a GPU's pools of CUDA graphs older Recordings know
    nothing; a run that had no CUDA graph kept none."""
    peaks = _peaks(run)
    if isinstance(peaks, m.Skipped):
        return peaks
    if run.whole.device != "cuda":
        return peaks.resident_bytes
    if isinstance(peaks.graph_pool_bytes, m.Skipped) and _has_no_cuda_graph(run):
        return peaks.allocated_bytes
    return peaks.taken_bytes


def _has_no_cuda_graph(run: RunEvidence) -> bool:
    """False where that was not looked at: neither compiling nor the calls of CUDA may be
    unknown."""
    seen = [each for each in run.whole.once(cuda_graphs.collect) if each.run == run.key]
    return any(
        not each.requested and not each.recorded and each.launches_per_step == 0 for each in seen
    )


def _allocated(run: RunEvidence) -> int | m.Skipped:
    peaks = _peaks(run)
    return peaks if isinstance(peaks, m.Skipped) else peaks.allocated_bytes


def _peaks(run: RunEvidence) -> m.MemoryPeaks | m.Skipped:
    memory = run.record.memory
    return memory if isinstance(memory, m.Skipped) else memory.peaks
