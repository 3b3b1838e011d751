"""What a regression is put down to, with what each cause explains of it, and what is left.

A new finding takes over the parts that its rule can be the reason of; each part is counted with one
cause, and what the causes do not account for is the remainder. Facts that need no clock (a CUDA
graph less, other results, a new finding) are causes also where no time can be called worse.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, zip_longest
from typing import Any

from msgspec.structs import replace

from kgprof import model as m
from kgprof.collectors import rule_of
from kgprof.compare import metrics, parts
from kgprof.compare.metrics import Metrics, Sides, named, plain
from kgprof.compare.parts import Part, Slower
from kgprof.wording import clause, short

MOST_CAUSES = 8  # of one run, but for those that are known to explain a part of the time
CLOCKLESS = m.Skipped("its share of the change is unknown")
OTHERS = m.Skipped("counted with another cause")
_UNTIMED = {True: OTHERS, False: CLOCKLESS}  # by whether another cause has its parts

# in place of a launch of a whole CUDA graph
_LAUNCHING = (m.CostKind.HOST, m.CostKind.LAUNCHES, m.CostKind.COPIES)


class _Run(m.Model, kw_only=False):
    """What is known about one run."""

    sides: Sides
    compared: Metrics
    findings: Sequence[m.ComparedFinding]
    seen: Sequence[Part]  # of the traces' difference, in their own microseconds
    slower: Slower | None
    root: str

    def worse(self, *names: str) -> m.ComparedMetric | None:
        """The first of them that is."""
        compared = filter(None, (named(self.compared, name) for name in names))
        return next(
            (metric for metric in compared if metric.verdict is m.MetricVerdict.WORSE), None
        )

    @property
    def new(self) -> list[m.Finding]:
        return [each.finding for each in self.findings if each.is_new]

    @property
    def lost_graphs(self) -> str:
        """Empty where no launch of a CUDA graph is gone, or where nothing is launched in its
        place."""
        lost = self.worse(metrics.GRAPH_LAUNCHES)
        calls = named(self.compared, metrics.LAUNCH_CALLS)
        if lost and calls and isinstance(calls.ratio, float) and calls.ratio >= 1:
            return f"{_from_to(lost)} CUDA-graph launches per step"
        return ""

    def cause(
        self, kind: m.CauseKind, text: str, explains_us: m.Figure = CLOCKLESS, **more: Any
    ) -> m.Cause:
        return m.Cause(
            cause=kind, run=self.sides.head.key, text=text, explains_us=explains_us, **more
        )

    def part(self, part: Part, explains_us: m.Figure = CLOCKLESS) -> m.Cause:
        kind = m.CauseKind.KERNEL
        if part.kind is not m.CostKind.REPLACED:
            kind = m.CauseKind(part.kind)
        return self.cause(
            kind, part.text, explains_us, subject=part.subject, location=part.location
        )

    def more_steps(self, steps: str, explains_us: m.Figure = CLOCKLESS) -> m.Cause:
        by = clause(" (", self.sides.other_settings, ")")
        return self.cause(m.CauseKind.STEPS, f"{steps}{by}", explains_us)


def _named_by(finding: m.Finding | None) -> dict[str, Any]:
    """The fields of a Cause that say which finding it is from."""
    if finding is None:
        return {}
    return {"rule": finding.rule, "fingerprint": finding.fingerprint, "location": finding.location}


def explained(
    sides: Sides,
    compared: Metrics,
    trace: m.TraceDifference,
    findings: Sequence[m.ComparedFinding],
    root: str,
) -> m.RunComparison:
    """One run's causes, with the sums. ``findings``: those of this run."""
    seen = parts.parts(trace, sides.base, sides.head, root)
    worse = parts.slower(sides, compared, trace, seen)
    run = _Run(sides, compared, findings, seen, worse, root)
    of_the_time = _of_the_time(run, worse) if worse else _untimed(run)
    causes = in_order([*_results_and_settings(run), *_facts(run), *of_the_time])
    window = trace.of_window("window")
    traced_us: m.Figure = m.Skipped(trace.missing or "there is no trace")
    if window:
        traced_us = window.delta_us
    found = m.RunComparison(
        run=sides.head.key,
        status=m.Presence.BOTH,
        metrics=tuple(compared),
        traced_us=traced_us,
        trace=trace,
        settings=sides.settings,
        causes=causes,
        notes=tuple(_notes(sides, worse, window)),
    )
    if worse:
        explained_us = sum((_known_us(cause) for cause in causes), 0.0)
        return replace(
            found,
            decided_by=worse.metric.name,
            per=worse.per,
            delta_us=worse.delta_us,
            explained_us=explained_us,
            remainder_us=worse.delta_us - explained_us,
            scale=worse.scale,
        )
    delta_us: m.Figure = m.Skipped("there is no time")
    if step := named(compared, m.TimeOf.STEP):
        delta_us = parts.longer(step)
    nothing = m.Skipped(sides.doubt or "no time is worse, so there is nothing to explain")
    return replace(
        found,
        decided_by=next((each.name for each in compared if each.time_of and each.decides), ""),
        delta_us=delta_us,
        explained_us=nothing,
        remainder_us=m.first_skipped(delta_us, nothing),
        scale=parts.trace_scale(compared, trace),
    )


@m.otherwise(0.0)
def _known_us(cause: m.Cause) -> float:
    return m.known(cause.explains_us)


def _notes(sides: Sides, worse: Slower | None, window: m.Change | None) -> Iterator[str]:
    if worse is not None:
        if worse.metric.verdict is not m.MetricVerdict.WORSE:
            yield (
                "the limit is not decided; it is explained because head is slower beyond the noise"
            )
        if isinstance(worse.scale, m.Skipped):
            yield f"the traces explain nothing here: {worse.scale.reason}"
        else:
            taken = "the traces explain nothing of what is slower"
            if worse.shown:
                taken = f"scaled by {short(worse.scale)} to match the unprofiled times"
            if window:
                more = short(window.delta_us, sign="+")
                taken = f"under the profiler the step changed by {more} µs; {taken}"
            yield taken
    if both := metrics.both_known(sides.base.kernels, sides.head.kernels):
        base, head = (side.measured_in.upper() for side in both)
        if base != head:
            yield f"base was traced in {base} and head in {head}"


# ---------------------------------------------------------------- their order


# In which order causes are told. Within one the larger share comes first, and of two alike the one
# that was made first.
RESULT, REASON, COUNTED, PART, UNTIMED, FACT, SYMPTOM = range(7)


class Ranked(m.Model, kw_only=False):
    rank: int
    cause: m.Cause
    share: float = 0.0  # microseconds of a part of the time, else what makes it come first


def in_order(ranked: Iterable[Ranked]) -> tuple[m.Cause, ...]:
    """A finding or a fact stands where it comes first, and nowhere else. A part of the time that is
    known is told however many there are, so that it is not left to the remainder."""
    causes: dict[tuple[str, str], m.Cause] = {}
    for each in sorted(ranked, key=lambda each: (each.rank, -each.share)):
        causes.setdefault((each.cause.cause, each.cause.fingerprint or each.cause.text), each.cause)
    told = list(causes.values())
    timed = (each for each in told[MOST_CAUSES:] if isinstance(each.explains_us, float))
    return (*told[:MOST_CAUSES], *timed)


def overall(
    runs: Sequence[m.RunComparison], whole: Sequence[m.ComparedFinding]
) -> tuple[m.Cause, ...]:
    """Of all runs: first what each puts first, that of the slowest run before the others', and so
    on; each kind at each place once. ``whole``: findings of no run."""
    ranked = sorted(runs, key=lambda run: -relative_time(run))
    causes: dict[object, m.Cause] = {}
    for cause in chain.from_iterable(zip_longest(*(run.causes for run in ranked))):
        if cause is not None:
            about = cause.subject or cause.text
            place: tuple[object, ...] = ()
            if cause.location:
                place = (cause.location.file, cause.location.line)
                if cause.fingerprint:
                    about = ""
            causes.setdefault((cause.cause, cause.rule, place, about), cause)
    new = [_of_finding(None, compared, CLOCKLESS) for compared in whole if compared.is_new]
    return (*causes.values(), *new)


def relative_time(run: m.RunComparison) -> float:
    """How much slower, by the metric that decides; a run that is not slower comes after all that
    are."""
    metric = named(run.metrics, run.decided_by)
    if metric and isinstance(metric.ratio, float) and isinstance(run.explained_us, float):
        return metric.ratio
    return 0.0


# ---------------------------------------------------------------- causes of time


def _of_the_time(run: _Run, slower: Slower) -> Iterator[Ranked]:
    """More steps; what new findings and lost CUDA graphs take over of the parts; then the bare
    parts."""
    key = run.sides.head.key
    left = list(slower.parts)
    if us := slower.more_steps_us:
        yield Ranked(REASON, run.more_steps(slower.more_steps, us), us)
    for compared in _to_tell(run):
        finding = compared.finding
        can = rule_of(finding).can_cost
        mine, shared = _claimed(can, slower, left)
        us = sum(part.us for part in mine)
        if mine and slower.is_a_share(us):
            left = [part for part in left if part not in mine]
            yield Ranked(REASON, _of_finding(key, compared, us, mine), us)
        # it may be the reason of a part that another one claims, or of what nothing accounts for
        else:
            rank = UNTIMED
            if finding.counts and (shared or (can and not slower.accounted_for)):
                rank = REASON
            elif _is_symptom(finding):
                rank = SYMPTOM
            yield Ranked(rank, _of_finding(key, compared, _UNTIMED[shared]))
    if lost := run.lost_graphs:  # the launches and the host's time are theirs
        mine, shared = _claimed(_LAUNCHING, slower, left)
        us = sum(part.us for part in mine)
        left = [part for part in left if part not in mine]
        why = next((finding for finding in run.new if _loses_graphs(finding)), None)
        text = lost
        if why:
            text = f"{lost}: {why.rule} {why.message}"
        explains: m.Figure = _UNTIMED[shared]
        if mine:
            explains = us
        cause = run.cause(m.CauseKind.CUDA_GRAPHS, text, explains, subject=lost, **_named_by(why))
        yield Ranked(REASON, cause, us)
    for part in left:
        if slower.is_a_share(part.us):
            yield Ranked(PART, run.part(part, part.us), part.us)
    # Kernels that are each too little to be told, and together are not.
    small = [
        part
        for part in left
        if part.kind is m.CostKind.KERNEL and not slower.is_a_share(abs(part.us))
    ]
    us = sum(part.us for part in small)
    if slower.is_a_share(us) and slower.metric.verdict is m.MetricVerdict.WORSE:
        text = (
            f"{len(small):,} other kernels, each under {100 * parts.LEAST_SHARE:.0f} % of "
            "the change"
        )
        yield Ranked(PART, run.cause(m.CauseKind.KERNEL, text, us), us)


def _claimed(
    can: Sequence[m.CostKind], slower: Slower, left: Sequence[Part]
) -> tuple[list[Part], bool]:
    """The parts that are left of those that it can be the reason of, and whether another cause has
    some of them."""
    mine = [part for part in slower.parts if part.kind in can and part.us > 0]
    return [part for part in mine if part in left], any(part not in left for part in mine)


def _untimed(run: _Run) -> Iterator[Ranked]:
    """No time is worse: a new finding is what there is to tell, but for one that is judged from
    times.

    One that can cost time comes before one that cannot.
    """
    for compared in _to_tell(run, lost_graphs=False):
        rule = rule_of(compared.finding)
        if not rule.judged_from_times:
            rank = SYMPTOM if _is_symptom(compared.finding) else REASON
            share = 0.5 * bool(rule.can_cost) - _weight(compared)
            yield Ranked(rank, _of_finding(run.sides.head.key, compared, CLOCKLESS), share)


def _to_tell(run: _Run, *, lost_graphs: bool = True) -> list[m.ComparedFinding]:
    """New, or more often than before; located and severe ones claim first. Results and lost graphs
    have causes of their own. Counts of some rules move by one with the number of steps that were
    watched."""
    told = []
    for compared in run.findings:
        finding = compared.finding
        doubled = compared.grew and compared.head_count >= 2 * compared.base_count
        if not (compared.is_new or (doubled and finding.counts)):
            continue
        of_lost_graphs = lost_graphs and run.lost_graphs and _loses_graphs(finding)
        if rule_of(finding).topic is not m.Topic.RESULTS and not of_lost_graphs:
            told.append(compared)
    return sorted(told, key=lambda compared: (_weight(compared), compared.finding.rule))


def _is_symptom(finding: m.Finding) -> bool:
    """It says that something is slow, or that the report cannot be relied on, and not why."""
    rule = rule_of(finding)
    return bool(rule.symptom_of) or rule.topic in (m.Topic.SOURCES, m.Topic.COVERAGE)


def _loses_graphs(finding: m.Finding) -> bool:
    """About CUDA graphs that are not launched; a copy before a replay costs no launch of the
    host's."""
    rule = rule_of(finding)
    return rule.topic is m.Topic.CUDA_GRAPHS and m.CostKind.LAUNCHES in rule.can_cost


def _weight(compared: m.ComparedFinding) -> int:
    severity = {m.Level.ERROR: 0, m.Level.WARNING: 1, m.Level.NOTE: 3}[compared.finding.level]
    return severity + (compared.finding.location is None) + (not compared.is_new)


def _of_finding(
    run: m.RunKey | None,
    compared: m.ComparedFinding,
    explains: m.Figure,
    claimed: Sequence[Part] = (),
) -> m.Cause:
    finding = compared.finding
    status = f"{compared.base_count:,} -> {compared.head_count:,} times"
    if compared.is_new:
        status = "new"
    return m.Cause(
        cause=m.CauseKind.FINDING,
        subject=finding.message,
        run=run,
        text=f"{status} {finding.rule} {finding.message}",
        seen_in_traces=tuple(part.text for part in claimed[:2]),
        explains_us=explains,
        **_named_by(finding),
    )


# ---------------------------------------------------------------- causes that need no clock


def _results_and_settings(run: _Run) -> Iterator[Ranked]:
    """Settings all together, and first of all, unless they are told with the steps that they make
    more of."""
    findings = [finding for finding in run.new if rule_of(finding).topic is m.Topic.RESULTS]
    subject = "results changed"
    words = [f"{finding.rule} {finding.alone}" for finding in findings]
    words += changed_results(run.sides.base, run.sides.head)
    if words:
        text = f"{subject}: {'; '.join(words[:4])}"
        named_by = _named_by(next(iter(findings), None))
        yield Ranked(RESULT, run.cause(m.CauseKind.RESULTS, text, subject=subject, **named_by))
    text = "; ".join(
        f"{s.name}: {s.base or 'not given'} -> {s.head or 'not given'}" for s in run.sides.settings
    )
    if text and run.worse(metrics.STEPS):
        yield Ranked(FACT, run.cause(m.CauseKind.SETTING, text, OTHERS))
    elif text:
        yield Ranked(RESULT, run.cause(m.CauseKind.SETTING, text), 1.0)


def changed_results(base: m.RunReport, head: m.RunReport) -> Iterator[str]:
    """From what each side says of its own evaluation, because neither holds the other's results.
    Nothing where nothing is known on a side. Of the metrics only the first that moved by more than
    near-ties can move it: a result is at most 1 of those averaged."""
    was = base.agreement
    now = head.agreement
    before = base.evaluation
    after = head.evaluation
    different = m.AgreementVerdict.DIFFERENT
    if (
        isinstance(was, m.RunAgreement)
        and isinstance(now, m.RunAgreement)
        and was.verdict != different == now.verdict
    ):
        differing = now.differing + now.reference_differing
        compared = now.compared + now.reference_compared
        yield (
            f"{differing:,} of {compared:,} results differ from the reference; in base they did not"
        )
    if isinstance(before, m.Skipped) or isinstance(after, m.Skipped):
        return
    if before.units != after.units:
        yield f"{head.unit.plural} {before.units:,} -> {after.units:,}"
    judged = [agreement for agreement in (was, now) if isinstance(agreement, m.RunAgreement)]
    # results that rounding may turn
    ties = sum(each.near_ties + each.reference_near_ties for each in judged)
    counted = {tally.name: tally.count for tally in before.tallies}
    for tally in after.tallies:
        count = counted.get(tally.name, tally.count)
        moved = abs(tally.count - count) > ties * tally.can_turn
        if tally.kind is not m.TallyKind.DROPPED and moved:
            yield f"{tally.name} {count:,} -> {tally.count:,}"
    there = {_name_of(metric): metric.value for metric in before.metrics}
    for metric in after.metrics:
        value = there.get(_name_of(metric), metric.value)
        if abs(metric.value - value) > max(metric.tolerance, ties / max(1, metric.over)):
            figures = f"{short(value, 6)} -> {short(metric.value, 6)}"
            if metric.over:
                figures = f"{value:.4f} -> {metric.value:.4f}"
            yield f"{metric.label}{clause(' (', ', '.join(metric.group.values()), ')')} {figures}"
            return


def _name_of(metric: m.Metric) -> tuple[object, ...]:
    return metric.label, *sorted(metric.group.items())


def _facts(run: _Run) -> list[Ranked]:
    """What is a cause of the time already is left out. Where the traces account for little of it,
    because they were made in other minutes than TIMING, what can be counted in them comes before
    what they timed.

    Those with the larger share are told first; of copies and launches what there is more of.
    """
    worse = run.slower
    told = []
    steps = run.worse(metrics.STEPS)
    if steps and not (worse and worse.more_steps_us):
        told.append(Ranked(FACT, run.more_steps(f"{_from_to(steps)} steps per evaluation"), 7.0))
    if peak := run.worse(metrics.ALLOCATED, metrics.RESERVED, metrics.RESIDENT):
        sizes = [f"{m.known(side) / 2**20:,.1f} MiB" for side in (peak.base, peak.head)]
        text = f"{peak.name} {' -> '.join(sizes)}"
        told.append(Ranked(FACT, run.cause(m.CauseKind.MEMORY, text), 4.0))
    compiled = run.worse(metrics.COMPILATIONS, metrics.COMPILE, metrics.WARM_COMPILE)
    if compiled and metrics.compiles(run.compared):
        text = f"{compiled.name} {_from_to(compiled)} {compiled.unit}"
        told.append(Ranked(FACT, run.cause(m.CauseKind.COMPILE, text), 3.0))
    counted = list(_counted(run))
    if worse is None or not worse.shown:
        return told + counted
    if worse.accounted_for:
        return told
    in_time = {str(part.kind) for part in worse.parts if worse.is_a_share(part.us)}
    return told + [
        replace(each, rank=COUNTED) for each in counted if each.cause.cause not in in_time
    ]


def _counted(run: _Run) -> Iterator[Ranked]:
    """CUDA graphs, copies, launches and calls of Python's functions."""

    def share(more: float) -> float:
        """Between 5 and 6, larger for more."""
        return 5.0 + max(0.0, more) / (1 + max(0.0, more))

    if run.lost_graphs:
        yield Ranked(FACT, run.cause(m.CauseKind.CUDA_GRAPHS, run.lost_graphs), 8.0)
    more = [part for part in run.seen if part.more >= parts.LEAST_MORE]
    copies = [part for part in more if part.kind is m.CostKind.COPIES]
    for part in copies:
        cause = run.cause(m.CauseKind.COPIES, part.text, subject=part.subject)
        yield Ranked(FACT, cause, share(part.more))
    kernels = run.worse(metrics.KERNELS)
    only_copies = (
        sum(part.more for part in copies) >= sum(part.more for part in run.seen) - parts.LEAST_MORE
    )
    if kernels and not only_copies:
        launched = [part for part in more if part.kind is m.CostKind.LAUNCHES]
        subject = f"{_from_to(kernels)} kernels per step"
        text = f"{subject}{clause(': ', '; '.join(part.text for part in launched))}"
        more_launches = sum(part.more for part in launched)
        yield Ranked(
            FACT, run.cause(m.CauseKind.LAUNCHES, text, subject=subject), share(more_launches)
        )
    if calls := parts.more_calls(run.sides.base, run.sides.head, run.root):
        yield Ranked(FACT, run.part(calls), 4.5)


def _from_to(metric: m.ComparedMetric) -> str:
    return f"{plain(metric.base)} -> {plain(metric.head)}"
