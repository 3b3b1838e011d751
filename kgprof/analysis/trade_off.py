"""Is a read worth what it saves? Work behind a read of its predicate against the same work done in
every step.

The verdict is by measured times of the two runs, held against each other as the report's first line
holds runs: with the same spreads and the same doubts. What the read itself costs is told beside it,
where it was seen.
"""

from collections.abc import Sequence

from kgprof import model as m
from kgprof.analysis.verdict import processes
from kgprof.collectors.time import syncs
from kgprof.collectors.time.syncs import WOULD_SYNC, Sync
from kgprof.judge import Faster
from kgprof.measures.times import (
    PER_STEP,
    STEPS_DIFFER,
    Unit,
    evaluates,
    held,
    per_unit,
    ranked,
    uncounted_evaluation,
    why_not,
    within_process,
)
from kgprof.reading.evidence import Evidence
from kgprof.wording import short

NOT_RUN = m.Skipped("it was not run in this mode")


def trade_offs(evidence: Evidence, runs: m.Runs) -> tuple[m.TradeOff, ...]:
    """One for each pair that the workload declares and each mode in which the guarded one ran.

    None where no times were asked for: there is nothing to weigh.
    """
    header = evidence.recording.header
    alternatives = header.plan.alternatives
    if not alternatives or header.options.untimed:
        return ()
    by_key = {run.key: run for run in runs}
    events = evidence.once(syncs.collect)
    on_cuda = evidence.device == "cuda"
    weighed = []
    for pair in alternatives:
        for run in runs:
            if run.key.strategy == pair.guarded:
                key = m.RunKey(pair.always, run.key.mode)
                weighed.append(weigh(run, by_key.get(key), key, events, on_cuda=on_cuda))
    return tuple(weighed)


def weigh(
    guarded: m.RunReport,
    always: m.RunReport | None,
    always_key: m.RunKey,
    events: Sequence[Sync],
    *,
    on_cuda: bool,
) -> m.TradeOff:
    """``events``: of all runs."""
    # Where the guarded run reads and the other one does not.
    waits = [site for site in events if site.rule != WOULD_SYNC.id]
    sites = [(site, (site.location.file, site.location.line, site.cause)) for site in waits]
    others = {place for site, place in sites if site.run == always_key}
    extra = [site for site, place in sites if site.run == guarded.key and place not in others]
    reads = _more_reads(guarded, always)
    sync_us = _waited(extra, reads, on_cuda)
    unit, mine, theirs = _times(guarded, always)
    saved_us = _saved(guarded, always, unit, sync_us)
    verdict, text = _judged((guarded, mine), (always, theirs), always_key, unit, reads)
    if verdict is not m.ReadVerdict.NOT_OBSERVED and not isinstance(sync_us, m.Skipped):
        text += f"; the CPU waited {sync_us:,.0f} µs per step here (under instrumentation)"
    location = None
    if extra:
        location = max(extra, key=lambda site: site.reads_per_step).location
    saved_per = "evaluation"
    if unit is PER_STEP:
        saved_per = "step"
    return m.TradeOff(
        guarded=guarded.key,
        always=always_key,
        location=location,
        syncs_per_step=reads,
        sync_us=sync_us,
        saved_us=saved_us,
        saved_per=saved_per,
        net=mine,
        net_always=theirs,
        verdict=verdict,
        text=text,
    )


def _more_reads(guarded: m.RunReport, always: m.RunReport | None) -> m.Figure:
    counts: list[float] = []
    for run in (guarded, always):
        if run is None:
            return m.Skipped("the alternative was not run")
        read = _reads(run.memory)
        if isinstance(read, m.Skipped):
            return m.Skipped(f"{run.slug}: {read.reason}")
        counts.append(read)
    return counts[0] - counts[1]


@m.skippable
def _reads(memory: m.MemorySummary | m.Skipped) -> m.Figure:
    return m.known(memory).syncs_per_step


@m.skippable
def _waited(extra: Sequence[Sync], reads: m.Figure, on_cuda: bool) -> m.Figure:
    """Microseconds a step, of these sites together."""
    if not on_cuda:
        return m.Skipped("not applicable on a CPU")
    m.known(reads)
    if not extra:
        return m.Skipped("no line syncs in one of the two only")
    calls = zip(*(m.known(site.waited_us) for site in extra), strict=True)
    return syncs.waited_a_step([sum(call) for call in calls])


def _times(guarded: m.RunReport, always: m.RunReport | None) -> tuple[Unit, m.Time, m.Time]:
    """Of both on what ranks them, else what either has, or why it has none."""
    each = per_unit(guarded.unit)
    mine = _whole(guarded)
    if always is None:
        return each, mine, NOT_RUN
    found = ranked([guarded, always])
    if found is not None and len(found.runs) == 2:
        of_each = {run.key: time for run, time in found.runs}
        return found.unit, of_each[guarded.key], of_each[always.key]
    if not (evaluates(guarded) or evaluates(always)):
        return PER_STEP, guarded.step, always.step
    theirs = _whole(always)
    if isinstance(mine, m.Spread) and isinstance(theirs, m.Spread):
        theirs = m.Skipped(STEPS_DIFFER)  # units here, whole evaluations there
    return each, mine, theirs


def _whole(run: m.RunReport) -> m.Time:
    """Or why there is no time a unit."""
    whole = uncounted_evaluation(run)
    if isinstance(whole, m.Spread):
        return whole
    return run.per_unit


@m.skippable
def _saved(
    guarded: m.RunReport, always: m.RunReport | None, unit: Unit, sync_us: m.Figure
) -> m.Figure:
    """What a step, or a whole evaluation, without the guard takes more, and the waits that it is
    spared, in us."""
    if always is None:
        return NOT_RUN
    if unit is PER_STEP:
        mine_us = m.known(guarded.step).median
        return m.known(always.step).median - mine_us + m.known(sync_us)
    mine_s = m.known(guarded.evaluation_time).median
    more_s = m.known(always.evaluation_time).median - mine_s
    steps = m.known(guarded.evaluation).steps
    return more_s * 1e6 + m.known(sync_us) * steps


def _judged(
    guarded: tuple[m.RunReport, m.Time],
    always: tuple[m.RunReport | None, m.Time],
    always_key: m.RunKey,
    unit: Unit,
    reads: m.Figure,
) -> tuple[m.ReadVerdict, str]:
    """The verdict, and the sentence with the figures that it rests on."""
    (run, mine), (other, theirs) = guarded, always
    names = run.slug, always_key.slug
    why = [
        f"{name}: {time.reason}"
        for name, time in zip(names, (mine, theirs), strict=True)
        if isinstance(time, m.Skipped)
    ]
    if any(each.results_differ for each in (run, other) if each is not None):
        why = ["results differ"]
    if other is None or why or not (isinstance(mine, m.Spread) and isinstance(theirs, m.Spread)):
        text = f"{names[0]} and {names[1]} were not compared: {'; '.join(why)}"
        return m.ReadVerdict.NOT_OBSERVED, text
    if not isinstance(reads, m.Skipped) and reads <= 0:
        text = f"{names[0]} syncs no more per step than {names[1]}, so there is no sync to judge"
        return m.ReadVerdict.NOT_OBSERVED, text
    figures = f"{_figure(names[0], mine, unit)}, {_figure(names[1], theirs, unit)}"
    answer = held(run, other, unit)
    if not isinstance(answer, Faster):
        return m.ReadVerdict.INCONCLUSIVE, f"{figures}: {why_not(answer, run, other, unit)}"
    verdict, words = m.ReadVerdict.REMOVE, "always doing the work"
    if answer.verdict is m.Judged.FASTER:
        verdict, words = m.ReadVerdict.KEEP, "skipping work after the sync"
    by = max(mine.median / theirs.median, theirs.median / mine.median)
    return verdict, f"{figures}: {words} is {short(by)}× faster, {processes(run, other)}"


def _figure(name: str, time: m.Spread, unit: Unit) -> str:
    ranged = "no spread"
    if time.samples > 1:
        kind = "range"
        if unit is PER_STEP:
            kind = "p10 to p90"
        ranged = f"{kind} {unit.ends(within_process(time, unit))}"
    return f"{name} takes {unit.say(time.median)} (TIMING, median, {ranged}, n = {time.samples:,})"
