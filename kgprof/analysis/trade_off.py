"""Is a read worth what it saves? Work behind a read of its predicate against the same work done in every step.

The verdict is by measured times of the two runs, held against each other as the report's first line holds runs: with
the same spreads and the same doubts. What the read itself costs is told beside it, where it was seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kgprof import model as m
from kgprof.analysis.verdict import counted_evaluation, doubt, overlap, processes, uncounted_evaluation
from kgprof.collectors import syncs
from kgprof.collectors.syncs import WOULD_SYNC, Sync
from kgprof.measures.times import PER_EVALUATION, PER_STEP, STEPS_DIFFER, Unit, per_unit
from kgprof.wording import short

KEEP, REMOVE, INCONCLUSIVE, NOT_OBSERVED = "keep the read", "remove it", "inconclusive", "not observed"
WHOLE = (counted_evaluation, uncounted_evaluation)  # what a whole evaluation is timed by


def trade_offs(recording: m.Recording, runs: Sequence[m.RunReport]) -> tuple[m.TradeOff, ...]:
    """One for each pair that the workload declares and each mode in which the guarded one ran.

    None where no times were asked for: there is nothing to weigh.
    """
    alternatives = recording.header.plan.alternatives
    if not alternatives or recording.header.options.untimed:
        return ()
    by_key, events = {run.key: run for run in runs}, syncs.collect(recording)
    on_cuda = recording.header.plan.device == "cuda"
    return tuple(
        weigh(run, by_key.get(key), key, events, on_cuda=on_cuda)
        for pair in alternatives
        for run in runs
        if run.key.strategy == pair.guarded
        for key in (m.RunKey(strategy=pair.always, mode=run.key.mode),)
    )


def weigh(
    guarded: m.RunReport, always: m.RunReport | None, always_key: m.RunKey, events: Sequence[Sync], *, on_cuda: bool
) -> m.TradeOff:
    """``events``: of all runs."""
    extra = _extra_sites(events, guarded.key, always_key)
    reads = _more_reads(guarded, always)
    sync_us = _waited(extra, reads, on_cuda)
    times = _times(guarded, always)
    saved_us = _saved(times, sync_us) if times.unit is PER_STEP else _saved_by_evaluation(guarded, always, sync_us)
    both = (guarded, *((always,) if always else ()))
    differ = any(run.results_differ for run in both)
    verdict, text = _judged(guarded.key, always_key, times, reads, where=processes(*both), results_differ=differ)
    return m.TradeOff(
        guarded=guarded.key,
        always=always_key,
        location=max(extra, key=lambda site: site.reads_per_step).location if extra else None,
        syncs_per_step=reads,
        sync_us=sync_us,
        saved_us=saved_us,
        saved_per="step" if times.unit is PER_STEP else "evaluation",
        net=times.guarded,
        net_always=times.always,
        verdict=verdict,
        text=text if verdict == NOT_OBSERVED else f"{text}{_price(sync_us)}{_worth(saved_us, times)}",
    )


# ---------------------------------------------------------------- the read


def _extra_sites(events: Sequence[Sync], guarded: m.RunKey, always: m.RunKey) -> list[Sync]:
    """Where the guarded run reads and the other one does not."""
    waits = [event for event in events if event.rule != WOULD_SYNC.id]
    others = {(site.location.file, site.location.line, site.cause) for site in waits if site.run == always}
    mine = (site for site in waits if site.run == guarded)
    return [site for site in mine if (site.location.file, site.location.line, site.cause) not in others]


def _more_reads(guarded: m.RunReport, always: m.RunReport | None) -> float | m.Skipped:
    counts: list[float] = []
    for run in (guarded, always):
        if run is None:
            return m.Skipped(reason="the other one was not run")
        read = run.memory if isinstance(run.memory, m.Skipped) else run.memory.syncs_per_step
        if isinstance(read, m.Skipped):
            return m.Skipped(reason=f"{run.key.slug}: {read.reason}")
        counts.append(read)
    return counts[0] - counts[1]


def _waited(extra: Sequence[Sync], reads: float | m.Skipped, on_cuda: bool) -> float | m.Skipped:
    """Microseconds a step, of these sites together."""
    if not on_cuda:
        return m.Skipped(reason="on a CPU the host waits for nobody")
    if isinstance(reads, m.Skipped):
        return reads
    if not extra:
        return m.Skipped(reason="no line reads in one of them alone")
    waited = [site.waited_us for site in extra]
    unseen = next((one for one in waited if isinstance(one, m.Skipped)), None)
    if unseen is not None:
        return unseen
    calls = zip(*(one for one in waited if not isinstance(one, m.Skipped)), strict=True)
    return syncs.waited_a_step([sum(call) for call in calls])


# ---------------------------------------------------------------- the times


@dataclass(frozen=True, kw_only=True, slots=True)
class _Times:
    """Of both runs in one unit; Skipped where there is nothing that both have."""

    unit: Unit
    guarded: m.Spread | m.Skipped
    always: m.Spread | m.Skipped
    doubt: str = ""  # why they cannot be ranked


def _times(guarded: m.RunReport, always: m.RunReport | None) -> _Times:
    """On the first quantity that both have; on steps only where neither has an evaluation to run to its end."""
    each = per_unit(guarded.unit)
    if always is None:
        gone = m.Skipped(reason="it was not run in this mode")
        return _Times(unit=each, guarded=_whole(guarded), always=gone)
    by_steps = not (_evaluates(guarded) or _evaluates(always))
    for unit, quantity in zip((each, PER_EVALUATION), WHOLE, strict=True):
        mine, theirs = quantity(guarded), quantity(always)
        if isinstance(mine, m.Spread) and isinstance(theirs, m.Spread):
            return _Times(unit=unit, guarded=mine, always=theirs, doubt=_doubt(guarded, mine, always, theirs, unit))
    if by_steps:
        mine, theirs = guarded.step, always.step
        both = isinstance(mine, m.Spread) and isinstance(theirs, m.Spread)
        why = _doubt(guarded, mine, always, theirs, PER_STEP) if both else ""  # type: ignore[arg-type]
        return _Times(unit=PER_STEP, guarded=mine, always=theirs, doubt=why)
    mine, theirs = _whole(guarded), _whole(always)
    unlike = isinstance(mine, m.Spread) and isinstance(theirs, m.Spread)  # units here, whole evaluations there
    return _Times(unit=each, guarded=mine, always=m.Skipped(reason=STEPS_DIFFER) if unlike else theirs)


def _evaluates(run: m.RunReport) -> bool:
    return isinstance(run.evaluation_time, m.Spread) or not isinstance(run.evaluation, m.Skipped)


def _whole(run: m.RunReport) -> m.Spread | m.Skipped:
    """Or why there is no time a unit."""
    known = (time for quantity in WHOLE if isinstance(time := quantity(run), m.Spread))
    return next(known, run.per_unit)


def _doubt(guarded: m.RunReport, mine: m.Spread, always: m.RunReport, theirs: m.Spread, unit: Unit) -> str:
    first, second = sorted(((guarded, mine), (always, theirs)), key=lambda pair: pair[1].median)
    why = doubt(*first, *second, unit)
    return why or ("their spreads overlap" if overlap(first[1], second[1], unit) else "")


def _saved(times: _Times, sync_us: float | m.Skipped) -> float | m.Skipped:
    """What a step without the guard takes more, and the wait that it is spared."""
    if isinstance(times.guarded, m.Skipped):
        return times.guarded
    if isinstance(times.always, m.Skipped):
        return times.always
    return sync_us if isinstance(sync_us, m.Skipped) else times.always.median - times.guarded.median + sync_us


def _saved_by_evaluation(
    guarded: m.RunReport, always: m.RunReport | None, sync_us: float | m.Skipped
) -> float | m.Skipped:
    """The same over a whole evaluation: the wait of a step times the steps that the guarded one took."""
    if always is None:
        return m.Skipped(reason="it was not run in this mode")
    mine, theirs = guarded.evaluation_time, always.evaluation_time
    if isinstance(mine, m.Skipped):
        return mine
    if isinstance(theirs, m.Skipped):
        return theirs
    if isinstance(guarded.evaluation, m.Skipped):
        return guarded.evaluation
    if isinstance(sync_us, m.Skipped):
        return sync_us
    return (theirs.median - mine.median) * 1e6 + sync_us * guarded.evaluation.steps


# ---------------------------------------------------------------- in words


def _judged(
    guarded: m.RunKey, always: m.RunKey, times: _Times, reads: float | m.Skipped, *, where: str, results_differ: bool
) -> tuple[str, str]:
    """The verdict, and the sentence with the figures that it rests on."""
    if isinstance(times.guarded, m.Skipped) or isinstance(times.always, m.Skipped) or results_differ:
        return NOT_OBSERVED, f"{guarded.slug} and {always.slug} were not weighed: {_why_not(guarded, always, times)}"
    if not isinstance(reads, m.Skipped) and reads <= 0:
        return NOT_OBSERVED, f"{guarded.slug} reads no more in a step than {always.slug}: there is no read to weigh"
    figures = f"{_figure(guarded, times.guarded, times.unit)}, {_figure(always, times.always, times.unit)}"
    if times.doubt:
        return INCONCLUSIVE, f"{figures}: {times.doubt}"
    keeps = times.guarded.median < times.always.median
    slower, faster = sorted((times.guarded.median, times.always.median), reverse=True)
    words = "the read with the work behind it" if keeps else "the work done in every step"
    return KEEP if keeps else REMOVE, f"{figures}: {words} is {short(slower / faster)}x as fast, {where}"


def _why_not(guarded: m.RunKey, always: m.RunKey, times: _Times) -> str:
    times_of = ((guarded, times.guarded), (always, times.always))
    said = [f"{key.slug}: {time.reason}" for key, time in times_of if isinstance(time, m.Skipped)]
    return "; ".join(said) or "results differ"


def _figure(key: m.RunKey, time: m.Spread, unit: Unit) -> str:
    low, high = (time.p10, time.p90) if unit is PER_STEP else (time.minimum, time.maximum)
    kind = "p10 to p90" if unit is PER_STEP else "range"
    ranged = f"{kind} {unit.bare(low)} to {unit.bare(high)}" if time.samples > 1 else "no spread"
    return f"{key.slug} takes {unit.say(time.median)} (TIMING, median, {ranged}, n = {time.samples:,})"


def _worth(saved_us: float | m.Skipped, times: _Times) -> str:
    if isinstance(saved_us, m.Skipped) or times.unit is PER_STEP:
        return ""
    if saved_us < 0:
        return (
            f", and what stands behind the read takes {short(-saved_us / 1000)} ms an evaluation more than without it"
        )
    return f", and the work behind the read takes {short(saved_us / 1000)} ms an evaluation less"


def _price(sync_us: float | m.Skipped) -> str:
    return "" if isinstance(sync_us, m.Skipped) else f"; under MEMORY's probes the host waited {sync_us:,.0f} us a step"
