"""What a regression is put down to, with what each cause explains of it, and what is left.

TIMING says how much slower; the traces say where, under an instrument that costs something. So a microsecond of the
trace is taken for as much of TIMING's as a traced step was longer than a timed one (both sides together), or for less
where the trace would explain more than there is; and what the causes do not account for is the remainder. A new finding
takes over the parts that its rule can be the reason of. Facts that need no clock (a CUDA graph less, other results, a
new finding) are causes also where no time can be called worse.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from kgprof.analysis.compare_findings import FROM_TIMES
from kgprof.analysis.compare_intervals import INCONCLUSIVE, WORSE
from kgprof.analysis.compare_metrics import (
    ALLOCATED,
    CANDIDATE,
    COMPILATIONS,
    COMPILE,
    EVALUATION,
    GRAPH_LAUNCHES,
    KERNELS,
    LAUNCH_CALLS,
    RESERVED,
    RESIDENT,
    STEP,
    STEPS,
    WARM_COMPILE,
    Sides,
    one_process,
    round_times,
)
from kgprof.analysis.compare_parts import (
    COPIES,
    HOST,
    KERNEL,
    LAUNCHES,
    LEAST_MORE,
    REPLACED,
    Part,
    more_calls,
    parts,
)
from kgprof.analysis.compare_results import changed_results
from kgprof.model import (
    Cause,
    ComparedFinding,
    ComparedMetric,
    KernelBreakdown,
    Level,
    RunComparison,
    RunReport,
    Skipped,
    TraceDifference,
)

# A part below this share of the regression is no cause; it stays in the remainder.
LEAST_SHARE = 0.05
# Below it, what the traces say does not account for the time, and a new finding that can cost time comes first.
ACCOUNTED_FOR = 0.5
# Where the interval does not settle it, a time is explained only if every round of head took longer than every round of
# base: with five a side that happens by chance once in 252 times (exact rank test), with three once in 20, which two
# recordings of one program on a machine with others on it were seen to do.
FEWEST_TO_RANK = 5
# Without rounds what differs between processes is not known, and on an H200 processes of one program were 1.4x apart:
# one of head's is explained only from here on, and only if nine of ten of its samples are above nine of ten of base's.
FAR_APART = 1.5
MOST_CAUSES = 8  # of one run

_CLOCKLESS = Skipped(reason="how much of the time is its doing is not known")
_OTHERS = Skipped(reason="counted with another cause")

_ANY = (HOST, LAUNCHES, COPIES, REPLACED)
# Which parts of a step a rule's finding can be the reason of. Without an entry it costs no time by itself.
CAN_COST: Mapping[str, tuple[str, ...]] = {
    "KGP101": _ANY,  # two graphs, Python between them, nothing fused across
    "KGP102": (*_ANY, KERNEL),
    "KGP103": (HOST, LAUNCHES, COPIES),
    "KGP104": _ANY,
    "KGP105": (HOST, LAUNCHES, COPIES),
    "KGP107": (*_ANY, KERNEL),
    "KGP201": (HOST, COPIES, LAUNCHES),
    "KGP202": (HOST, COPIES, LAUNCHES),
    "KGP203": (HOST, COPIES, LAUNCHES),
    "KGP301": (HOST, LAUNCHES, COPIES),
    "KGP302": (HOST, LAUNCHES, COPIES),
    "KGP303": (HOST, LAUNCHES, COPIES),
    "KGP304": (HOST, LAUNCHES, COPIES),
    "KGP305": (COPIES, HOST),
    "KGP401": (COPIES, HOST),
    "KGP404": (COPIES,),
}
_RESULTS = ("KGP501", "KGP502")
_SYMPTOMS = ("KGP503", "KGP504", "KGP601", "KGP602", "KGP603")  # they say that something is slow, not why
_CUDA_GRAPHS = ("KGP301", "KGP302", "KGP303", "KGP304")

# The order in which causes are told. Within one the larger share comes first.
_RESULT, _SETTING, _FINDING, _STEPS, _PART, _UNTIMED, _FACT, _SYMPTOM = range(8)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Ranked:
    rank: int
    cause: Cause
    share: float = 0.0

    @property
    def order(self) -> tuple[int, float]:
        return self.rank, -self.share


@dataclass(frozen=True, kw_only=True, slots=True)
class _Regression:
    """How much longer, per ``per``; ``scale`` turns the trace's microseconds a step into it."""

    metric: ComparedMetric
    per: str
    delta_us: float
    scale: float | Skipped
    steps: float = 1.0
    between_steps_us: float = 0.0


def explained(
    sides: Sides,
    metrics: Sequence[ComparedMetric],
    trace: TraceDifference,
    findings: Sequence[ComparedFinding],
    root: str,
) -> RunComparison:
    """One run's causes, with the sums. ``findings``: those of this run."""
    found = parts(trace, sides.base, sides.head, root)
    slower = _regression(sides, metrics, trace)
    slower = slower and _fitted(slower, found, _more_steps(sides, metrics, slower)[1])
    ranked = [
        *_results(sides, findings),
        *_settings(sides, metrics),
        *_facts(sides, metrics, found, slower),
        *_more_calls(sides, root, told=slower is not None and _shown(slower, found, sides, metrics)),
        *(_timed(sides, metrics, found, findings, slower) if slower else _untimed(sides, findings)),
    ]
    causes = tuple(_once(one.cause for one in sorted(ranked, key=lambda one: one.order)))[:MOST_CAUSES]
    delta, explained_us = _sums(slower, causes, metrics)
    return RunComparison(
        run=sides.head.key,
        status="both",
        metrics=tuple(metrics),
        decided_by=_decided_by(metrics, slower),
        per=slower.per if slower else "step",
        delta_us=delta,
        explained_us=explained_us,
        remainder_us=_less(delta, explained_us),
        traced_us=_traced(trace),
        scale=slower.scale if slower else _scale(metrics, trace),
        trace=trace,
        settings=sides.settings,
        causes=causes,
        notes=_notes(sides, slower, trace),
    )


def _once(causes: Iterable[Cause]) -> Iterable[Cause]:
    """A finding or a fact is told once, where it stands first."""
    seen: set[tuple[str, str]] = set()
    for cause in causes:
        name = (cause.cause, cause.fingerprint or cause.text)
        if name not in seen:
            seen.add(name)
            yield cause


# ---------------------------------------------------------------- how much


def _fitted(slower: _Regression, found: Sequence[Part], by_steps_us: float) -> _Regression:
    """A profiler makes each event longer, and so also what more events cost: a trace that explains more than there is
    is scaled to what there is."""
    shown_us, left_us = sum(max(0.0, part.us) for part in found) * slower.steps, slower.delta_us - by_steps_us
    if isinstance(slower.scale, Skipped) or left_us <= 0 or shown_us * slower.scale <= left_us:
        return slower
    return replace(slower, scale=left_us / shown_us)


def _named(metrics: Sequence[ComparedMetric], name: str) -> ComparedMetric | None:
    return next((one for one in metrics if one.name == name), None)


def _regression(sides: Sides, metrics: Sequence[ComparedMetric], trace: TraceDifference) -> _Regression | None:
    """None where no time is worse: by its interval, or, where that does not settle it, by far.

    In another environment nothing is known of the program's part in it.
    """
    if not sides.comparable:
        return None
    deciding = [m for name in (STEP, EVALUATION, CANDIDATE) if (m := _named(metrics, name)) is not None and m.decides]
    worse = [m for m in deciding if m.verdict == WORSE]
    worse = worse or [m for m in deciding if m.verdict == INCONCLUSIVE and _far_apart(m, sides)]
    if not worse:
        return None
    metric, per_step = worse[0], worse[0].name == STEP
    scale = _scale(metrics, trace)
    if per_step:
        assert not isinstance(metric.base, Skipped)
        assert not isinstance(metric.head, Skipped)
        return _Regression(metric=metric, per="step", delta_us=metric.head - metric.base, scale=scale)
    return _of_an_evaluation(sides, metrics, metric, scale)


def _of_an_evaluation(
    sides: Sides, metrics: Sequence[ComparedMetric], metric: ComparedMetric, scale: float | Skipped
) -> _Regression:
    """Microseconds of a whole evaluation, or of a candidate where the two sides do not evaluate as many: its steps, and
    what lies outside of the steps' usual time."""
    assert not isinstance(metric.base, Skipped)
    assert not isinstance(metric.head, Skipped)
    step, per = _named(metrics, STEP), "candidate" if metric.name == CANDIDATE else "evaluation"
    delta = (metric.head - metric.base) * (1e3 if metric.name == CANDIDATE else 1e6)
    before, after = _steps(sides.base, per), _steps(sides.head, per)
    between = 0.0
    if before and after and step and not isinstance(step.base, Skipped) and not isinstance(step.head, Skipped):
        between = delta - (after * step.head - before * step.base)
    return _Regression(
        metric=metric,
        per=per,
        delta_us=delta,
        scale=scale,
        steps=(before + after) / 2,
        between_steps_us=between,
    )


def _steps(run: RunReport, per: str) -> float:
    """Of an evaluation, or of a candidate, of which a step advances many."""
    if isinstance(run.evaluation, Skipped):
        return 0.0
    return run.evaluation.steps / (run.evaluation.candidates if per == "candidate" else 1)


def _far_apart(metric: ComparedMetric, sides: Sides) -> bool:
    """Of a metric whose interval settles nothing: see FEWEST_TO_RANK and FAR_APART."""
    if isinstance(metric.ratio, Skipped) or metric.ratio <= 1 + (metric.budget_percent or 0.0) / 100:
        return False
    base, head = (round_times(metric.name, side) for side in (sides.base, sides.head))
    if min(len(base), len(head)) > 1:
        return min(len(base), len(head)) >= FEWEST_TO_RANK and min(head) > max(base)
    before, after = (one_process(metric.name, side) for side in (sides.base, sides.head))
    if isinstance(before, Skipped) or isinstance(after, Skipped):
        return False
    return metric.ratio >= FAR_APART and min(before.samples, after.samples) > 1 and after.p10 > before.p90


def _scale(metrics: Sequence[ComparedMetric], trace: TraceDifference) -> float | Skipped:
    """A microsecond of the traced window in TIMING's."""
    step, window = _named(metrics, STEP), next((row for row in trace.window if row.name == "window"), None)
    if window is None or trace.per != "step":
        return Skipped(reason=trace.missing or "the traces mark no steps")
    if step is None or isinstance(step.base, Skipped) or isinstance(step.head, Skipped):
        return Skipped(reason="TIMING has no step to hold the traces against")
    traced = window.before_us + window.after_us
    return (step.base + step.head) / traced if traced > 0 else Skipped(reason="the traced windows are empty")


# ---------------------------------------------------------------- causes of time


def _timed(
    sides: Sides,
    metrics: Sequence[ComparedMetric],
    found: Sequence[Part],
    findings: Sequence[ComparedFinding],
    slower: _Regression,
) -> list[_Ranked]:
    """Steps first, because they multiply everything; then what new findings take over; then the bare parts."""
    by_steps, steps_us = _more_steps(sides, metrics, slower)
    scaled = _scaled(found, slower) if _shown(slower, found, sides, metrics) else []
    scaled += _between(slower, sum(part.us for part in scaled) + steps_us)
    lost = _lost_graphs(sides, metrics)
    claimed, left = _claims(sides, findings, scaled, slower, steps_us, lost)
    graphs, left = _graphs(sides, lost, findings, left, slower)
    bare = [_bare(sides, part, slower) for part in left if part.us >= LEAST_SHARE * slower.delta_us]
    return [*by_steps, *claimed, *graphs, *bare, *_alike(sides, left, slower)]


def _shown(slower: _Regression, found: Sequence[Part], sides: Sides, metrics: Sequence[ComparedMetric]) -> bool:
    """Whether the traces are longer as well; where they are not, what is longer in them is not what TIMING met."""
    left_us = slower.delta_us - _more_steps(sides, metrics, slower)[1]
    if isinstance(slower.scale, Skipped) or left_us <= LEAST_SHARE * slower.delta_us:
        return False
    return sum(part.us for part in found) * slower.scale * slower.steps >= LEAST_SHARE * left_us


def _scaled(found: Sequence[Part], slower: _Regression) -> list[Part]:
    """In TIMING's microseconds of what the regression is of. None where the traces do not show it at all."""
    if isinstance(slower.scale, Skipped):
        return []
    factor = slower.scale * slower.steps
    return [_times(part, factor) for part in found]


def _times(part: Part, factor: float) -> Part:
    return Part(what=part.what, us=part.us * factor, text=part.text, more=part.more, location=part.location)


def _between(slower: _Regression, accounted_us: float) -> list[Part]:
    """Of an evaluation: what no part accounts for and lies outside of the steps' usual time."""
    us = min(slower.between_steps_us, slower.delta_us - accounted_us)
    if slower.per == "step" or us < (1 - ACCOUNTED_FOR) * slower.delta_us:
        return []
    text = "outside of the median step: between the steps, or in a few that take longer than the others"
    return [Part(what=HOST, us=us, text=text)]


def _more_steps(sides: Sides, metrics: Sequence[ComparedMetric], slower: _Regression) -> tuple[list[_Ranked], float]:
    """What more steps an evaluation cost. Where each takes less than before (a smaller batch), what both come to."""
    step, before, after = _named(metrics, STEP), _steps(sides.base, slower.per), _steps(sides.head, slower.per)
    if slower.per == "step" or after <= before or step is None:
        return [], 0.0
    if isinstance(step.base, Skipped) or isinstance(step.head, Skipped):
        return [], 0.0
    cheaper = step.head <= step.base
    us = after * step.head - before * step.base if cheaper else (after - before) * (step.base + step.head) / 2
    each = f", each {step.base:,.0f} -> {step.head:,.0f} us" if cheaper else ""
    if slower.per == "evaluation":
        how_many = f"{after:,.0f} steps an evaluation, {before:,.0f} in base"
    else:
        how_many = f"{after:,.3g} steps a candidate, {before:,.3g} in base"
    text = f"{how_many}{each}{_by_setting(sides)}"
    cause = Cause(cause="steps", run=sides.head.key, text=text, explains_us=us)
    return [_Ranked(rank=_STEPS, cause=cause, share=us / slower.delta_us)], us


def _by_setting(sides: Sides) -> str:
    said = [f"{s.name} {s.base or 'not given'} -> {s.head or 'not given'}" for s in sides.settings]
    return f" ({'; '.join(said)})" if said else ""


def _claims(
    sides: Sides,
    findings: Sequence[ComparedFinding],
    scaled: Sequence[Part],
    slower: _Regression,
    steps_us: float,
    graphs_lost: str,
) -> tuple[list[_Ranked], list[Part]]:
    """New findings, each with the parts that its rule can be the reason of, and the parts that are left."""
    ranked: list[_Ranked] = []
    left = list(scaled)
    positive = sum(part.us for part in scaled) + steps_us
    for one in _told(findings, graphs_lost):
        can = CAN_COST.get(one.finding.rule, ())
        mine = [part for part in left if part.what in can and part.us > 0]
        us = sum(part.us for part in mine)
        enough = us >= LEAST_SHARE * slower.delta_us
        left = [part for part in left if part not in mine] if enough else left
        shared = any(r.share and r.rank == _FINDING for r in ranked) and bool(can)
        unaccounted = bool(can) and positive < ACCOUNTED_FOR * slower.delta_us and one.finding.level is not Level.NOTE
        leads = (enough or unaccounted or shared) and _serious_enough(one, enough=enough)
        explains: float | Skipped = us if enough else _OTHERS if shared else _CLOCKLESS
        ranked.append(
            _Ranked(
                rank=_FINDING if leads else _SYMPTOM if one.finding.rule in _SYMPTOMS else _UNTIMED,
                cause=_finding_cause(sides, one, explains, mine if enough else ()),
                share=us / slower.delta_us if enough else 0.0,
            )
        )
    return ranked, left


def _serious_enough(one: ComparedFinding, *, enough: bool) -> bool:
    return enough or one.finding.level is not Level.NOTE


def _told(findings: Sequence[ComparedFinding], graphs_lost: str) -> list[ComparedFinding]:
    """New, or more often than before; located and severe ones claim first. Results and lost graphs have causes of
    their own."""
    told = [
        one
        for one in findings
        if (one.status == "new" or _much_more(one))
        and one.finding.rule not in _RESULTS
        and not (graphs_lost and one.finding.rule in _CUDA_GRAPHS)
    ]
    return sorted(told, key=lambda one: (_weight(one), one.finding.rule))


def _weight(one: ComparedFinding) -> int:
    severity = {Level.ERROR: 0, Level.WARNING: 1, Level.NOTE: 3}[one.finding.level]
    return severity + (one.finding.location is None) + (one.status != "new")


def _much_more(one: ComparedFinding) -> bool:
    """Counts of some rules move by one with the number of steps that were watched."""
    return one.grew and one.head_count >= 2 * one.base_count and one.finding.level is not Level.NOTE


def _finding_cause(
    sides: Sides, one: ComparedFinding, explains: float | Skipped, claimed: Sequence[Part] = ()
) -> Cause:
    finding = one.finding
    status = "new" if one.status == "new" else f"{one.base_count:,} -> {one.head_count:,} times"
    seen = "; seen in the traces as " + "; ".join(part.text for part in claimed[:2]) if claimed else ""
    return Cause(
        cause="finding",
        run=sides.head.key,
        text=f"{status} {finding.rule} {finding.message}{seen}",
        explains_us=explains,
        fingerprint=finding.fingerprint,
        location=finding.location,
    )


def _graphs(
    sides: Sides, lost: str, findings: Sequence[ComparedFinding], left: Sequence[Part], slower: _Regression
) -> tuple[list[_Ranked], list[Part]]:
    """Launches of whole CUDA graphs that are gone: the launches and the host's time are theirs."""
    if not lost:
        return [], list(left)
    mine = [part for part in left if part.what in (HOST, LAUNCHES, COPIES) and part.us > 0]
    us = sum(part.us for part in mine)
    cause = _graphs_cause(sides, lost, findings, us if us else _CLOCKLESS)
    share = us / slower.delta_us
    return [_Ranked(rank=_FINDING, cause=cause, share=share)], [part for part in left if part not in mine]


def _bare(sides: Sides, part: Part, slower: _Regression) -> _Ranked:
    kind = KERNEL if part.what == REPLACED else part.what
    cause = Cause(cause=kind, run=sides.head.key, text=part.text, explains_us=part.us, location=part.location)
    return _Ranked(rank=_PART, cause=cause, share=part.us / slower.delta_us)


def _alike(sides: Sides, left: Sequence[Part], slower: _Regression) -> list[_Ranked]:
    """Kernels that are each too little to be told, and together are not."""
    small = [part for part in left if part.what == KERNEL and abs(part.us) < LEAST_SHARE * slower.delta_us]
    us = sum(part.us for part in small)
    if us < LEAST_SHARE * slower.delta_us or slower.metric.verdict != WORSE:
        return []
    text = f"{len(small):,} further kernels, each of them below {100 * LEAST_SHARE:.0f} % of it"
    cause = Cause(cause=KERNEL, run=sides.head.key, text=text, explains_us=us)
    return [_Ranked(rank=_PART, cause=cause, share=us / slower.delta_us)]


# ---------------------------------------------------------------- causes that need no clock


def _untimed(sides: Sides, findings: Sequence[ComparedFinding]) -> list[_Ranked]:
    """No time is worse: a new finding is what there is to tell, but for one that is judged from times.

    One that can cost time comes before one that cannot.
    """
    return [
        _Ranked(
            rank=_SYMPTOM if one.finding.rule in _SYMPTOMS else _FINDING,
            cause=_finding_cause(sides, one, _CLOCKLESS),
            share=-_weight(one) + 0.5 * (one.finding.rule in CAN_COST),
        )
        for one in _told(findings, "")
        if one.finding.rule not in FROM_TIMES
    ]


def _results(sides: Sides, findings: Sequence[ComparedFinding]) -> list[_Ranked]:
    told = [one for one in findings if one.status == "new" and one.finding.rule in _RESULTS]
    changed = changed_results(sides.base, sides.head)
    if not told and not changed:
        return []
    finding = told[0].finding if told else None
    words = [*(f"{one.finding.rule} {one.finding.message}" for one in told), *changed]
    cause = Cause(
        cause="results",
        run=sides.head.key,
        text=f"results changed: {'; '.join(words[:4])}",
        explains_us=_CLOCKLESS,
        fingerprint=finding.fingerprint if finding else "",
        location=finding.location if finding else None,
    )
    return [_Ranked(rank=_RESULT, cause=cause)]


def _settings(sides: Sides, metrics: Sequence[ComparedMetric]) -> list[_Ranked]:
    """First of all, unless it is told with the steps that it makes more of."""
    steps = _named(metrics, STEPS)
    with_steps = steps is not None and steps.verdict == WORSE
    return [
        _Ranked(
            rank=_FACT if with_steps else _RESULT,
            share=0.0 if with_steps else 1.0,
            cause=Cause(
                cause="setting",
                run=sides.head.key,
                text=f"{s.name}: {s.base or 'not given'} -> {s.head or 'not given'}",
                explains_us=_OTHERS if with_steps else _CLOCKLESS,
            ),
        )
        for s in sides.settings
    ]


def _facts(
    sides: Sides, metrics: Sequence[ComparedMetric], found: Sequence[Part], slower: _Regression | None
) -> list[_Ranked]:
    """Counts and sizes that are worse. What is a cause of the time already is left out."""
    worse = {metric.name: metric for metric in metrics if metric.verdict == WORSE}
    told: list[tuple[str, str, float]] = []
    if not slower or not _shown(slower, found, sides, metrics):
        if STEPS in worse and not (slower and slower.per != "step"):
            told.append(("steps", f"{_from_to(worse[STEPS])} steps an evaluation{_by_setting(sides)}", 7.0))
        if lost := _lost_graphs(sides, metrics):
            told.append(("cuda-graphs", lost, 8.0))
        copies = [part for part in found if part.what == COPIES and part.more >= LEAST_MORE]
        told += [("copies", part.text, 5.0 + _share(part.more)) for part in copies]
        only_copies = sum(part.more for part in copies) >= sum(part.more for part in found) - LEAST_MORE
        if KERNELS in worse and not only_copies:
            launched = [part for part in found if part.what == LAUNCHES and part.more >= LEAST_MORE]
            said = "; ".join(part.text for part in launched)
            more = _share(sum(part.more for part in launched))
            told.append(("launches", f"{_from_to(worse[KERNELS])} kernels a step: {said}", 5.0 + more))
    peak = next((worse[name] for name in (ALLOCATED, RESERVED, RESIDENT) if name in worse), None)
    if peak is not None:
        told.append(("memory", f"{peak.name} {_mib(peak.base)} -> {_mib(peak.head)}", 4.0))
    compiled = next((worse[name] for name in (COMPILATIONS, COMPILE, WARM_COMPILE) if name in worse), None)
    if compiled is not None:
        told.append(("compile", f"{compiled.name} {_from_to(compiled)} {compiled.unit}", 3.0))
    return [
        _Ranked(
            rank=_FACT,
            share=weight,
            cause=Cause(cause=kind, run=sides.head.key, text=text, explains_us=_CLOCKLESS),
        )
        for kind, text, weight in told
    ]


def _more_calls(sides: Sides, root: str, *, told: bool) -> list[_Ranked]:
    """Python's functions are called more often, as cProfile counts: no clock is needed for that.

    ``told``: the traces show what is slower, the host's part of it among the rest.
    """
    found = None if told else more_calls(sides.base, sides.head, root)
    if found is None:
        return []
    text = f"{found.before:,.0f} -> {found.after:,.0f} calls of Python's functions a step, {found.largest} first"
    cause = Cause(cause=HOST, run=sides.head.key, text=text, explains_us=_CLOCKLESS, location=found.location)
    return [_Ranked(rank=_FACT, cause=cause, share=4.5)]


def _share(more: float) -> float:
    """Between 0 and 1, larger for more: what there is more of is told first."""
    return max(0.0, more) / (1 + max(0.0, more))


def _lost_graphs(sides: Sides, metrics: Sequence[ComparedMetric]) -> str:
    """Empty where no launch of a CUDA graph is gone, or where nothing is launched in its place."""
    metric = _named(metrics, GRAPH_LAUNCHES)
    if metric is None or metric.verdict != WORSE:
        return ""
    calls = _named(metrics, LAUNCH_CALLS)
    if calls is None or isinstance(calls.ratio, Skipped) or calls.ratio < 1:
        return ""
    return f"{_from_to(metric)} launches of CUDA graphs a step"


def _graphs_cause(sides: Sides, lost: str, findings: Sequence[ComparedFinding], explains: float | Skipped) -> Cause:
    said = next((one.finding for one in findings if one.status == "new" and one.finding.rule in _CUDA_GRAPHS), None)
    return Cause(
        cause="cuda-graphs",
        run=sides.head.key,
        text=f"{lost}: {said.rule} {said.message}" if said else lost,
        explains_us=explains,
        fingerprint=said.fingerprint if said else "",
        location=said.location if said else None,
    )


def _from_to(metric: ComparedMetric) -> str:
    return f"{_figure(metric.base)} -> {_figure(metric.head)}"


def _figure(value: float | Skipped) -> str:
    return "not observed" if isinstance(value, Skipped) else f"{value:,.4g}"


def _mib(value: float | Skipped) -> str:
    return "not observed" if isinstance(value, Skipped) else f"{value / 2**20:,.1f} MiB"


# ---------------------------------------------------------------- the sums


def _decided_by(metrics: Sequence[ComparedMetric], slower: _Regression | None) -> str:
    if slower is not None:
        return slower.metric.name
    return next((name for name in (STEP, EVALUATION, CANDIDATE) if (m := _named(metrics, name)) and m.decides), "")


def _sums(
    slower: _Regression | None, causes: Sequence[Cause], metrics: Sequence[ComparedMetric]
) -> tuple[float | Skipped, float | Skipped]:
    """The difference, and what the causes explain of it."""
    if slower is None:
        step = _named(metrics, STEP)
        delta = _less(step.head, step.base) if step else Skipped(reason="there is no time")
        return delta, Skipped(reason="no time is worse, so there is nothing to explain")
    us = [cause.explains_us for cause in causes if not isinstance(cause.explains_us, Skipped)]
    return slower.delta_us, sum(us, 0.0)


def _less(one: float | Skipped, other: float | Skipped) -> float | Skipped:
    if isinstance(one, Skipped):
        return one
    return other if isinstance(other, Skipped) else one - other


def _traced(trace: TraceDifference) -> float | Skipped:
    window = next((row for row in trace.window if row.name == "window"), None)
    return window.delta_us if window else Skipped(reason=trace.missing or "there is no trace")


def _notes(sides: Sides, slower: _Regression | None, trace: TraceDifference) -> tuple[str, ...]:
    said = []
    if slower is not None and slower.metric.verdict != WORSE:
        said.append("the interval does not settle it; it is explained because the samples lie apart")
    if slower is not None and isinstance(slower.scale, Skipped):
        said.append(f"the traces explain nothing here: {slower.scale.reason}")
    elif slower is not None and not isinstance(slower.scale, Skipped):
        taken = f"a microsecond of the traces is taken for {slower.scale:.3g} of TIMING's"
        window = _traced(trace)
        longer = not isinstance(window, Skipped) and window > 0
        shown = "" if isinstance(window, Skipped) else f"the traced step differs by {window:+,.3g} us; "
        said.append(f"{shown}{taken if longer else 'the traces explain nothing of what is slower'}")
    before, after = sides.base.kernels, sides.head.kernels
    traced = [side.measured_in.upper() for side in (before, after) if isinstance(side, KernelBreakdown)]
    if len(set(traced)) > 1:
        said.append(f"base was traced in {traced[0]} and head in {traced[1]}")
    return tuple(said)


def overall(runs: Sequence[RunComparison], whole: Sequence[ComparedFinding]) -> tuple[Cause, ...]:
    """Of all runs: each kind at each place once, the largest of them; runs that got slowest first. ``whole``: findings
    of no run."""
    ranked = sorted(runs, key=lambda run: -_relative(run))
    found: dict[tuple[str, str, object], Cause] = {}
    for position in range(MOST_CAUSES):
        for run in ranked:
            if position < len(run.causes):
                cause = run.causes[position]
                found.setdefault((cause.cause, _rule(cause), _place(cause)), cause)
    unplaced = [
        Cause(
            cause="finding",
            text=f"new {one.finding.rule} {one.finding.message}",
            explains_us=_CLOCKLESS,
            fingerprint=one.finding.fingerprint,
            location=one.finding.location,
        )
        for one in whole
        if one.status == "new"
    ]
    return (*found.values(), *unplaced)


def _relative(run: RunComparison) -> float:
    """How much slower, by the metric that decides; a run that is not slower comes after all that are."""
    metric = _named(run.metrics, run.decided_by)
    if metric is None or isinstance(metric.ratio, Skipped) or isinstance(run.explained_us, Skipped):
        return 0.0
    return metric.ratio


def _rule(cause: Cause) -> str:
    words = cause.text.split()
    return next((word for word in words[:5] if word.startswith("KGP")), "") if cause.fingerprint else ""


def _place(cause: Cause) -> object:
    """Of a finding its line; else what it is about, which stands before the figures."""
    if cause.fingerprint and cause.location:
        return cause.location.file, cause.location.line
    return cause.text.partition(": ")[0]
