"""What the MEMORY pass says of each run: peaks, what a mode takes over eager, and reads per
step."""

from collections.abc import Callable
from typing import NamedTuple

from kgprof import model as m
from kgprof.collectors.graphs import cuda_graphs
from kgprof.collectors.time import syncs
from kgprof.collectors.trust import witnesses
from kgprof.reading.evidence import RunEvidence

_ON_A_CPU = m.Skipped("CPU allocations are not counted; the resident set is measured instead")
LOW, MODERATE = 0.10, 0.25  # of what eager mode takes
MARGIN = 1.25  # of a budget, for peaks that were not seen


@m.skippable
def summary(run: RunEvidence) -> m.MemorySummary | m.Skipped:
    """A device has a count of its own; on a CPU the whole process's memory stands for it."""
    memory = m.known(run.record.memory)
    events = run.whole.once(syncs.collect)
    taken = _taken(run)
    beside = over = _beside_eager(run, _taken)
    taken_on_gpu: int | m.Skipped = _ON_A_CPU
    over_of = "resident"
    if run.whole.device == "cuda":
        taken_on_gpu = taken
        over_of = "taken"
        if isinstance(taken, m.Skipped):
            over = _beside_eager(run, _allocated)
            over_of = "allocated"
    unseen = _why_no_reads(run)
    syncs_per_step: m.Figure = m.Skipped(unseen)
    reads = {}
    if not unseen:
        syncs_per_step = syncs.syncs_per_step(events, run.key)
        reads = syncs.reads_by_finding(events, run.key)
    return m.MemorySummary(
        steps=max(0, len(memory.step_us) - memory.steady_from),
        peaks=memory.peaks,
        over_eager_bytes=_bytes_over(over),
        over_eager_of=over_of,
        taken_bytes=taken_on_gpu,
        of_eager=_of_eager(beside),
        tier=_tier(beside),
        budget_bytes=_budget(taken),
        syncs_per_step=syncs_per_step,
        reads=reads,
    )


def tier(over: float) -> m.MemoryTier:
    """``over``: what a run takes over eager mode, as a share of what that takes."""
    if over < LOW:
        return m.MemoryTier.LOW
    if over < MODERATE:
        return m.MemoryTier.MODERATE
    return m.MemoryTier.HIGH


def _why_no_reads(run: RunEvidence) -> str:
    """Empty where every read was seen, step by step."""
    watched = run.once(witnesses.WITNESSES[m.Witness.READS])
    if isinstance(watched, m.Skipped):
        return watched.reason
    if run.record.script is not None and run.record.script.is_one_window:
        return "the program has no steps to count"
    return ""


class _Beside(NamedTuple):
    """The same peak of a run and of its strategy in mode eager."""

    own: int
    eager: int

    @property
    def share_over(self) -> float:
        return self.own / max(1, self.eager) - 1.0


@m.skippable
def _bytes_over(beside: _Beside | m.Skipped) -> int:
    both = m.known(beside)
    return both.own - both.eager


@m.skippable
def _of_eager(beside: _Beside | m.Skipped) -> float:
    both = m.known(beside)
    return both.eager / max(1, both.own)


@m.skippable
def _budget(taken_bytes: int | m.Skipped) -> int:
    return round(m.known(taken_bytes) * MARGIN)


@m.otherwise(None)
def _tier(beside: _Beside | m.Skipped) -> m.MemoryTier:
    return tier(m.known(beside).share_over)


@m.skippable
def _beside_eager(
    run: RunEvidence, peak: Callable[[RunEvidence], int | m.Skipped]
) -> _Beside | m.Skipped:
    if run.key.is_eager:
        return m.Skipped("this is the eager run")
    eager = run.whole.run(m.RunKey(run.key.strategy, m.EAGER))
    if eager is None:
        return m.Skipped(f"{run.key.strategy} was not run in mode eager")
    own = m.known(peak(run))
    theirs = peak(eager)
    if isinstance(theirs, m.Skipped):
        return m.Skipped(f"eager run: {theirs.reason}")
    return _Beside(own, theirs)


@m.skippable
def _taken(run: RunEvidence) -> int | m.Skipped:
    """What the run keeps from everybody else. Of a GPU's pools of CUDA graphs older Recordings know
    nothing; a run that had no CUDA graph kept none."""
    peaks = _peaks(run)
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


@m.skippable
def _allocated(run: RunEvidence) -> int | m.Skipped:
    return _peaks(run).allocated_bytes


def _peaks(run: RunEvidence) -> m.MemoryPeaks:
    return m.known(m.known(run.record.memory).peaks)
