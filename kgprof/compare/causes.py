"""What a regression is put down to, with what each cause explains of it, and what is left.

A new finding takes over the parts that its rule can be the reason of; each part is counted with one cause, and what the
causes do not account for is the remainder. Facts that need no clock (a CUDA graph less, other results, a new finding)
are causes also where no time can be called worse.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest

from kgprof import model as m
from kgprof.compare.findings import FROM_TIMES
from kgprof.compare.metrics import (
    ALLOCATED,
    COMPILATIONS,
    COMPILE,
    GRAPH_LAUNCHES,
    KERNELS,
    LAUNCH_CALLS,
    RESERVED,
    RESIDENT,
    STEPS,
    TIMES,
    WARM_COMPILE,
    Sides,
    named,
    plain,
    timed,
)
from kgprof.compare.parts import (
    LEAST_MORE,
    LEAST_SHARE,
    Part,
    PartKind,
    Slower,
    longer,
    more_calls,
    parts,
    slower,
    trace_scale,
)
from kgprof.compare.results import changed_results
from kgprof.wording import short

MOST_CAUSES = 8  # of one run, but for those that are known to explain a part of the time
CLOCKLESS = m.Skipped(reason="how much of the time is its doing is not known")
OTHERS = m.Skipped(reason="counted with another cause")

_ANY = (PartKind.HOST, PartKind.LAUNCHES, PartKind.COPIES, PartKind.REPLACED)
_LAUNCHING = (PartKind.HOST, PartKind.LAUNCHES, PartKind.COPIES)
# Which parts of a step a rule's finding can be the reason of. Without an entry it costs no time by itself.
CAN_COST: Mapping[str, tuple[PartKind, ...]] = {
    "KGP101": _ANY,  # two graphs, Python between them, nothing fused across
    "KGP102": (*_ANY, PartKind.KERNEL),
    "KGP104": _ANY,
    "KGP107": (*_ANY, PartKind.KERNEL),
    "KGP305": (PartKind.COPIES, PartKind.HOST),
    "KGP401": (PartKind.COPIES, PartKind.HOST),
    "KGP404": (PartKind.COPIES,),
    **dict.fromkeys(("KGP103", "KGP105", "KGP201", "KGP202", "KGP203"), _LAUNCHING),
    **dict.fromkeys(("KGP301", "KGP302", "KGP303", "KGP304"), _LAUNCHING),
}
_RESULTS = ("KGP501", "KGP502")
_CUDA_GRAPHS = ("KGP301", "KGP302", "KGP303", "KGP304")
_SYMPTOMS = ("KGP503", "KGP504", "KGP601", "KGP602", "KGP603")  # they say that something is slow, not why


@dataclass(frozen=True, kw_only=True, slots=True)
class _Run:
    """What is known about one run: ``seen`` are the parts of the traces' difference, in their own microseconds."""

    sides: Sides
    metrics: Sequence[m.ComparedMetric]
    findings: Sequence[m.ComparedFinding]
    seen: Sequence[Part]
    slower: Slower | None
    root: str

    def worse(self, name: str) -> m.ComparedMetric | None:
        metric = named(self.metrics, name)
        return metric if metric is not None and metric.verdict is m.MetricVerdict.WORSE else None

    @property
    def lost_graphs(self) -> str:
        """Empty where no launch of a CUDA graph is gone, or where nothing is launched in its place."""
        lost, calls = self.worse(GRAPH_LAUNCHES), named(self.metrics, LAUNCH_CALLS)
        if lost is None or calls is None or isinstance(calls.ratio, m.Skipped) or calls.ratio < 1:
            return ""
        return f"{_from_to(lost)} launches of CUDA graphs a step"

    @property
    def by_setting(self) -> str:
        return f" ({self.sides.other_settings})" if self.sides.settings else ""


def explained(
    sides: Sides,
    metrics: Sequence[m.ComparedMetric],
    trace: m.TraceDifference,
    findings: Sequence[m.ComparedFinding],
    root: str,
) -> m.RunComparison:
    """One run's causes, with the sums. ``findings``: those of this run."""
    seen = parts(trace, sides.base, sides.head, root)
    worse = slower(sides, metrics, trace, seen)
    run = _Run(sides=sides, metrics=metrics, findings=findings, seen=seen, slower=worse, root=root)
    of_the_time = _of_the_time(run, worse) if worse else _untimed(run)
    causes = in_order([*_results(run), *_settings(run), *_facts(run), *of_the_time])
    decides = next((metric for of in TIMES if (metric := timed(metrics, of)) and metric.decides), None)
    delta_us: float | m.Skipped
    explained_us: float | m.Skipped
    remainder_us: float | m.Skipped
    if worse is None:
        step = timed(metrics, m.TimeOf.STEP)
        delta_us = longer(step) if step else m.Skipped(reason="there is no time")
        explained_us = m.Skipped(reason=sides.doubt or "no time is worse, so there is nothing to explain")
        remainder_us = delta_us if isinstance(delta_us, m.Skipped) else explained_us
    else:
        delta_us = worse.delta_us
        explained_us = sum((us for cause in causes if not isinstance(us := cause.explains_us, m.Skipped)), 0.0)
        remainder_us = delta_us - explained_us
        decides = worse.metric
    window = next((row for row in trace.window if row.name == "window"), None)
    return m.RunComparison(
        run=sides.head.key,
        status=m.Presence.BOTH,
        metrics=tuple(metrics),
        decided_by=decides.name if decides else "",
        per=worse.per if worse else "step",
        delta_us=delta_us,
        explained_us=explained_us,
        remainder_us=remainder_us,
        traced_us=window.delta_us if window else m.Skipped(reason=trace.missing or "there is no trace"),
        scale=worse.scale if worse else trace_scale(metrics, trace),
        trace=trace,
        settings=sides.settings,
        causes=causes,
        notes=tuple(_notes(sides, worse, window)),
    )


def _notes(sides: Sides, worse: Slower | None, window: m.Change | None) -> Iterator[str]:
    if worse is not None:
        if worse.metric.verdict is not m.MetricVerdict.WORSE:
            yield "the interval does not settle it; it is explained because the samples lie apart"
        if isinstance(worse.scale, m.Skipped):
            yield f"the traces explain nothing here: {worse.scale.reason}"
        else:
            taken = f"a microsecond of the traces is taken for {short(worse.scale)} of TIMING's"
            shown = f"the traced step differs by {short(window.delta_us, sign='+')} us; " if window else ""
            yield f"{shown}{taken if worse.shown else 'the traces explain nothing of what is slower'}"
    before, after = sides.base.kernels, sides.head.kernels
    traced = [side.measured_in.upper() for side in (before, after) if isinstance(side, m.KernelBreakdown)]
    if len(set(traced)) > 1:
        yield f"base was traced in {traced[0]} and head in {traced[1]}"


# ---------------------------------------------------------------- their order


# In which order causes are told. Within one the larger share comes first, and of two alike the one that was made first.
RESULT, REASON, COUNTED, PART, UNTIMED, FACT, SYMPTOM = range(7)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranked:
    rank: int
    cause: m.Cause
    share: float = 0.0


def in_order(ranked: Iterable[Ranked]) -> tuple[m.Cause, ...]:
    """A finding or a fact stands where it comes first, and nowhere else. A part of the time that is known is told
    however many there are, so that it is not left to the remainder."""
    causes: dict[tuple[str, str], m.Cause] = {}
    for each in sorted(ranked, key=lambda each: (each.rank, -each.share)):
        causes.setdefault((each.cause.cause, each.cause.fingerprint or each.cause.text), each.cause)
    return tuple(
        cause
        for place, cause in enumerate(causes.values())
        if place < MOST_CAUSES or not isinstance(cause.explains_us, m.Skipped)
    )


def overall(runs: Sequence[m.RunComparison], whole: Sequence[m.ComparedFinding]) -> tuple[m.Cause, ...]:
    """Of all runs: first what each puts first, that of the slowest run before the others', and so on; each kind at each
    place once. ``whole``: findings of no run."""
    ranked = sorted(runs, key=lambda run: -relative_time(run))
    causes: dict[object, m.Cause] = {}
    for cause in chain.from_iterable(zip_longest(*(run.causes for run in ranked))):
        if cause is not None:
            place = (cause.location.file, cause.location.line) if cause.location else None
            about = "" if cause.fingerprint and place else cause.subject or cause.text
            causes.setdefault((cause.cause, cause.rule, place, about), cause)
    new = [_of_finding(compared, None, CLOCKLESS) for compared in whole if compared.status is m.FindingStatus.NEW]
    return (*causes.values(), *new)


def relative_time(run: m.RunComparison) -> float:
    """How much slower, by the metric that decides; a run that is not slower comes after all that are."""
    metric = named(run.metrics, run.decided_by)
    if metric is None or isinstance(metric.ratio, m.Skipped) or isinstance(run.explained_us, m.Skipped):
        return 0.0
    return metric.ratio


# ---------------------------------------------------------------- causes of time


def _of_the_time(run: _Run, slower: Slower) -> Iterator[Ranked]:
    """More steps; what new findings and lost CUDA graphs take over of the parts; then the bare parts."""
    key, left = run.sides.head.key, list(slower.parts)
    if slower.more_steps is not None and slower.more_steps.us:
        us, text = slower.more_steps.us, f"{slower.more_steps.text}{run.by_setting}"
        cause = m.Cause(cause=m.CauseKind.STEPS, run=key, text=text, explains_us=us)
        yield Ranked(rank=REASON, cause=cause, share=slower.share(us))
    for compared in _to_tell(run):
        can = CAN_COST.get(compared.finding.rule, ())
        mine, shared = _claimed(can, slower, left)
        us = sum(part.us for part in mine)
        if mine and slower.is_a_share(us):
            left = [part for part in left if part not in mine]
            yield Ranked(rank=REASON, cause=_of_finding(compared, key, us, mine), share=slower.share(us))
        else:  # it may be the reason of a part that another one claims, or of what nothing accounts for
            leads = (shared or (can and not slower.accounted_for)) and compared.finding.level is not m.Level.NOTE
            rank = REASON if leads else SYMPTOM if compared.finding.rule in _SYMPTOMS else UNTIMED
            yield Ranked(rank=rank, cause=_of_finding(compared, key, OTHERS if shared else CLOCKLESS))
    if run.lost_graphs:
        mine, shared = _claimed(_LAUNCHING, slower, left)
        us = sum(part.us for part in mine)
        left = [part for part in left if part not in mine]
        cause = _of_lost_graphs(run, us if mine else OTHERS if shared else CLOCKLESS)
        yield Ranked(rank=REASON, cause=cause, share=slower.share(us))
    for part in left:
        if slower.is_a_share(part.us):
            kind = m.CauseKind.KERNEL if part.kind is PartKind.REPLACED else m.CauseKind(part.kind)
            cause = m.Cause(
                cause=kind, subject=part.subject, run=key, text=part.text, explains_us=part.us, location=part.location
            )
            yield Ranked(rank=PART, cause=cause, share=slower.share(part.us))
    # Kernels that are each too little to be told, and together are not.
    small = [part for part in left if part.kind is PartKind.KERNEL and not slower.is_a_share(abs(part.us))]
    us = sum(part.us for part in small)
    if slower.is_a_share(us) and slower.metric.verdict is m.MetricVerdict.WORSE:
        text = f"{len(small):,} further kernels, each of them below {100 * LEAST_SHARE:.0f} % of it"
        cause = m.Cause(cause=m.CauseKind.KERNEL, run=key, text=text, explains_us=us)
        yield Ranked(rank=PART, cause=cause, share=slower.share(us))


def _claimed(can: Sequence[PartKind], slower: Slower, left: Sequence[Part]) -> tuple[list[Part], bool]:
    """The parts that are left of those that it can be the reason of, and whether another cause has some of them."""
    mine = [part for part in slower.parts if part.kind in can and part.us > 0]
    return [part for part in mine if part in left], any(part not in left for part in mine)


def _untimed(run: _Run) -> Iterator[Ranked]:
    """No time is worse: a new finding is what there is to tell, but for one that is judged from times.

    One that can cost time comes before one that cannot.
    """
    for compared in _to_tell(run, lost_graphs=False):
        if compared.finding.rule not in FROM_TIMES:
            rank = SYMPTOM if compared.finding.rule in _SYMPTOMS else REASON
            share = 0.5 * (compared.finding.rule in CAN_COST) - _weight(compared)
            yield Ranked(rank=rank, cause=_of_finding(compared, run.sides.head.key, CLOCKLESS), share=share)


def _to_tell(run: _Run, *, lost_graphs: bool = True) -> list[m.ComparedFinding]:
    """New, or more often than before; located and severe ones claim first. Results and lost graphs have causes of
    their own. Counts of some rules move by one with the number of steps that were watched."""
    elsewhere = (*_RESULTS, *_CUDA_GRAPHS) if lost_graphs and run.lost_graphs else _RESULTS
    told = []
    for compared in run.findings:
        doubled = compared.grew and compared.head_count >= 2 * compared.base_count
        more = doubled and compared.finding.level is not m.Level.NOTE
        if (compared.status is m.FindingStatus.NEW or more) and compared.finding.rule not in elsewhere:
            told.append(compared)
    return sorted(told, key=lambda compared: (_weight(compared), compared.finding.rule))


def _weight(compared: m.ComparedFinding) -> int:
    severity = {m.Level.ERROR: 0, m.Level.WARNING: 1, m.Level.NOTE: 3}[compared.finding.level]
    return severity + (compared.finding.location is None) + (compared.status is not m.FindingStatus.NEW)


def _of_finding(
    compared: m.ComparedFinding, run: m.RunKey | None, explains: float | m.Skipped, claimed: Sequence[Part] = ()
) -> m.Cause:
    finding, new = compared.finding, compared.status is m.FindingStatus.NEW
    message = finding.message.removeprefix(f"{run.slug}: ") if run else finding.message
    status = "new" if new else f"{compared.base_count:,} -> {compared.head_count:,} times"
    return m.Cause(
        cause=m.CauseKind.FINDING,
        rule=finding.rule,
        subject=message,
        run=run,
        text=f"{status} {finding.rule} {message}",
        seen_in_traces=tuple(part.text for part in claimed[:2]),
        explains_us=explains,
        fingerprint=finding.fingerprint,
        location=finding.location,
    )


def _of_lost_graphs(run: _Run, explains: float | m.Skipped) -> m.Cause:
    """The launches and the host's time are theirs; with the first new finding that says why they are gone."""
    new = (compared.finding for compared in run.findings if compared.status is m.FindingStatus.NEW)
    why = next((finding for finding in new if finding.rule in _CUDA_GRAPHS), None)
    return m.Cause(
        cause=m.CauseKind.CUDA_GRAPHS,
        rule=why.rule if why else "",
        subject=run.lost_graphs,
        run=run.sides.head.key,
        text=f"{run.lost_graphs}: {why.rule} {why.message}" if why else run.lost_graphs,
        explains_us=explains,
        fingerprint=why.fingerprint if why else "",
        location=why.location if why else None,
    )


# ---------------------------------------------------------------- causes that need no clock


def _results(run: _Run) -> Iterator[Ranked]:
    new = [compared.finding for compared in run.findings if compared.status is m.FindingStatus.NEW]
    told = [finding for finding in new if finding.rule in _RESULTS]
    words = [f"{finding.rule} {finding.message}" for finding in told]
    words += changed_results(run.sides.base, run.sides.head)
    if words:
        subject, finding = "results changed", told[0] if told else None
        cause = m.Cause(
            cause=m.CauseKind.RESULTS,
            rule=finding.rule if finding else "",
            subject=subject,
            run=run.sides.head.key,
            text=f"{subject}: {'; '.join(words[:4])}",
            explains_us=CLOCKLESS,
            fingerprint=finding.fingerprint if finding else "",
            location=finding.location if finding else None,
        )
        yield Ranked(rank=RESULT, cause=cause)


def _settings(run: _Run) -> Iterator[Ranked]:
    """All together, and first of all, unless they are told with the steps that they make more of."""
    if run.sides.settings:
        each = [f"{s.name}: {s.base or 'not given'} -> {s.head or 'not given'}" for s in run.sides.settings]
        with_steps = run.worse(STEPS) is not None
        cause = m.Cause(
            cause=m.CauseKind.SETTING,
            run=run.sides.head.key,
            text="; ".join(each),
            explains_us=OTHERS if with_steps else CLOCKLESS,
        )
        yield Ranked(rank=FACT if with_steps else RESULT, share=0.0 if with_steps else 1.0, cause=cause)


def _facts(run: _Run) -> list[Ranked]:
    """What is a cause of the time already is left out. Where the traces account for little of it, because they were
    made in other minutes than TIMING, what can be counted in them comes before what they timed.

    Those with the larger weight are told first; of copies and launches what there is more of.
    """
    worse, told = run.slower, []
    steps = run.worse(STEPS)
    if steps and not (worse and worse.more_steps and worse.more_steps.us):
        text = f"{_from_to(steps)} steps an evaluation{run.by_setting}"
        told.append(_fact(run, m.CauseKind.STEPS, text, weight=7.0))
    peak = run.worse(ALLOCATED) or run.worse(RESERVED) or run.worse(RESIDENT)
    if peak:
        sizes = " -> ".join(
            m.MetricVerdict.NOT_OBSERVED if isinstance(side, m.Skipped) else f"{side / 2**20:,.1f} MiB"
            for side in (peak.base, peak.head)
        )
        told.append(_fact(run, m.CauseKind.MEMORY, f"{peak.name} {sizes}", weight=4.0))
    compiled = run.worse(COMPILATIONS) or run.worse(COMPILE) or run.worse(WARM_COMPILE)
    if compiled:
        text = f"{compiled.name} {_from_to(compiled)} {compiled.unit}"
        told.append(_fact(run, m.CauseKind.COMPILE, text, weight=3.0))
    counted = list(_counted(run))
    if worse is None or not worse.shown:
        return told + counted
    if worse.accounted_for:
        return told
    in_time = {str(part.kind) for part in worse.parts if worse.is_a_share(part.us)}
    return told + [replace(each, rank=COUNTED) for each in counted if each.cause.cause not in in_time]


def _counted(run: _Run) -> Iterator[Ranked]:
    """CUDA graphs, copies, launches and calls of Python's functions."""

    def weight(more: float) -> float:
        """Between 5 and 6, larger for more."""
        return 5.0 + max(0.0, more) / (1 + max(0.0, more))

    if run.lost_graphs:
        yield _fact(run, m.CauseKind.CUDA_GRAPHS, run.lost_graphs, weight=8.0)
    copies = [part for part in run.seen if part.kind is PartKind.COPIES and part.more >= LEAST_MORE]
    for part in copies:
        yield _fact(run, m.CauseKind.COPIES, part.text, weight=weight(part.more), subject=part.subject)
    kernels = run.worse(KERNELS)
    only_copies = sum(part.more for part in copies) >= sum(part.more for part in run.seen) - LEAST_MORE
    if kernels and not only_copies:
        launched = [part for part in run.seen if part.kind is PartKind.LAUNCHES and part.more >= LEAST_MORE]
        subject = f"{_from_to(kernels)} kernels a step"
        text = f"{subject}: {'; '.join(part.text for part in launched)}" if launched else subject
        more = weight(sum(part.more for part in launched))
        yield _fact(run, m.CauseKind.LAUNCHES, text, weight=more, subject=subject)
    if calls := more_calls(run.sides.base, run.sides.head, run.root):
        text = f"{calls.before:,.0f} -> {calls.after:,.0f} calls of Python's functions a step, {calls.largest} first"
        yield _fact(run, m.CauseKind.HOST, text, weight=4.5, location=calls.location)


def _fact(
    run: _Run,
    kind: m.CauseKind,
    text: str,
    *,
    weight: float,
    subject: str = "",
    location: m.Location | None = None,
) -> Ranked:
    cause = m.Cause(
        cause=kind, subject=subject, run=run.sides.head.key, text=text, explains_us=CLOCKLESS, location=location
    )
    return Ranked(rank=FACT, share=weight, cause=cause)


def _from_to(metric: m.ComparedMetric) -> str:
    return f"{plain(metric.base)} -> {plain(metric.head)}"
