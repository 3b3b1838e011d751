"""What a comparison comes to: the exit code and the sentence. The first of WORST_FIRST that applies
leads."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain

from msgspec.structs import replace

from kgprof import model as m
from kgprof.compare.causes import relative_time
from kgprof.compare.findings import would_fail
from kgprof.compare.metrics import both_known, compiles, named, plain
from kgprof.compare.work import in_words
from kgprof.errors import (
    EXIT_GATE_FAILED,
    EXIT_INCONCLUSIVE,
    EXIT_NOTHING_MEASURED,
    EXIT_WORKLOAD,
    WORST_FIRST,
)
from kgprof.judge import could_have_seen
from kgprof.wording import clause, plural, relative, short, slower

_STATUS = {EXIT_GATE_FAILED: m.VerdictStatus.FAILED, EXIT_WORKLOAD: m.VerdictStatus.FAILED}
_LEADS = {  # before the first reason, where the status alone would not say what it means
    EXIT_WORKLOAD: "no verdict, the workload failed: ",
    EXIT_NOTHING_MEASURED: "no verdict, nothing to compare: ",
}
_WORSE = m.MetricVerdict.WORSE
_INCONCLUSIVE = m.MetricVerdict.INCONCLUSIVE


class Reason(m.Model, kw_only=False):
    exit_code: int
    text: str
    same_for_all: str = ""  # what it says of every run alike, where it does
    worse: m.RunKey | None = None  # the run of which a metric is worse


def reasons(base: m.Profile, head: m.Profile, compared: m.Comparison) -> tuple[Reason, ...]:
    """Everything that keeps the comparison from passing, worst first."""
    found = [*_deaths(head), *_open(base, compared)]
    if compared.fail_on != "never":
        found += _regressions(compared, head.source_root)
    return tuple(sorted(found, key=lambda reason: WORST_FIRST.index(reason.exit_code)))


def _deaths(profile: m.Profile) -> Iterator[Reason]:
    for run in profile.runs:
        for ended in (run.exit, run.probe_exit):
            if ended is not None and ended.outcome != "ok":
                code = EXIT_WORKLOAD
                if ended.outcome == "interrupted":
                    code = EXIT_INCONCLUSIVE
                yield Reason(code, f"{run.slug} {ended.words}")


def _regressions(compared: m.Comparison, root: str) -> Iterator[Reason]:
    """Metrics of the slowest run first, then new findings, then results: a program that gives
    something else is another program, which no time can make up for."""
    for run in sorted(compared.runs, key=lambda run: -relative_time(run)):
        for metric in run.metrics:
            if metric.decides and metric.verdict is _WORSE:
                yield Reason(
                    EXIT_GATE_FAILED, f"{run.run.slug}: {metric_words(metric)}", worse=run.run
                )
    for new in (each.finding for each in compared.findings if each.fails):
        text = f"new {new.rule}{clause(' at ', _named(new.location, root))}: {new.message}"
        if new.run:
            text = f"{new.run.slug}: {text}"
        yield Reason(EXIT_GATE_FAILED, text)
    for run in compared.runs:
        for cause in run.causes:
            if cause.cause is m.CauseKind.RESULTS and not run.settings:
                yield Reason(EXIT_GATE_FAILED, f"{run.run.slug}: {cause.text}")


def _open(base: m.Profile, compared: m.Comparison) -> Iterator[Reason]:
    """What leaves it open whether head is worse."""
    if not any(run.status is m.Presence.BOTH for run in compared.runs):
        yield Reason(EXIT_NOTHING_MEASURED, "the two sides have no run in common")
    for died in _deaths(base):
        yield Reason(EXIT_INCONCLUSIVE, f"base: {died.text}")
    for run in compared.runs:
        if run.status is m.Presence.GONE:
            yield Reason(EXIT_INCONCLUSIVE, f"{run.run.slug} was not run in head")
        if base.options.for_the_work and isinstance(run.work, m.Skipped):
            why = f"what is compiled was not compared: {run.work.reason}"
            yield Reason(EXIT_INCONCLUSIVE, f"{run.run.slug}: {why}")
    yield from _not_looked_for(compared)
    for run in compared.runs:
        deciding = [metric for metric in run.metrics if metric.decides]
        undecided = [metric for metric in deciding if metric.verdict is _INCONCLUSIVE]
        # the step and the evaluation of one run are of one mind mostly
        for metric in undecided[:1]:
            reason = Reason(EXIT_INCONCLUSIVE, f"{run.run.slug}: {metric_words(metric)}")
            if metric.undecided is m.Undecided.ONE_ROUND:
                reason = replace(reason, same_for_all=metric.note)
            yield reason
        unseen = [metric for metric in deciding if metric.verdict is m.MetricVerdict.NOT_OBSERVED]
        times = [metric for metric in run.metrics if metric.time_of]
        unseen += [
            t for t in times if isinstance(t.base, m.Skipped) != isinstance(t.head, m.Skipped)
        ][:1]
        if not any(metric.decides for metric in times):
            unseen += [metric for metric in times if metric.undecided is m.Undecided.OTHER_WORK][:1]
        for metric in unseen:
            yield Reason(
                EXIT_INCONCLUSIVE, f"{run.run.slug}: {metric.name} was not compared: {metric.note}"
            )


def _not_looked_for(compared: m.Comparison) -> Iterator[Reason]:
    """Findings of head that would fail if they were new, which base cannot tell."""
    unknown = [each for each in compared.findings if each.escaped == "base"]
    failing = [each for each in unknown if would_fail(each.finding, compared.fail_on)]
    for why, same in Counter(each.missing for each in failing).items():
        yield Reason(
            EXIT_INCONCLUSIVE,
            f"base did not look for {plural(same, 'finding')} of head, which may be new: {why}",
        )


# ---------------------------------------------------------------- in words


def verdict(found: Sequence[Reason], compared: m.Comparison, root: str) -> m.Verdict:
    """``root``: of head's sources, from which places are named."""
    judged = replace(_verdict(found, compared, root), trust=_power(compared))
    if not compared.upgrade:
        return judged
    text = "; ".join(dict.fromkeys((*judged.text.split("; "), *compared.work.split("; "))))
    also = (*compared.notes, *(each for each in judged.reasons if each != compared.work))
    return replace(judged, text=f"{compared.upgrade}: {text}", reasons=also)


def _power(compared: m.Comparison) -> str:
    """How small a slow-down these pairs would have shown, of the times that decide; empty where
    sides were not recorded in turn, or one is slower."""
    seen = []
    for metric in _times(compared):
        interval = both_known(metric.low, metric.high)
        if interval is not None and metric.verdict is not _WORSE:
            seen.append(f"{metric.name} {100 * could_have_seen(*interval):.2g} %")
    if compared.in_turn is None or not seen:
        return ""
    return f"slowdowns that four of five such recordings find: {', '.join(dict.fromkeys(seen))}"


def _times(compared: m.Comparison) -> list[m.ComparedMetric]:
    """Those that decide."""
    metrics = chain.from_iterable(run.metrics for run in compared.runs)
    return [metric for metric in metrics if metric.decides and metric.time_of]


def _verdict(found: Sequence[Reason], compared: m.Comparison, root: str) -> m.Verdict:
    if not found:
        text = _passed(compared, root)
        also = tuple(reason for reason in _also(compared, root) if reason not in text)
        return m.Verdict(status=m.VerdictStatus.OK, text=text, reasons=also)
    first = found[0]
    code = first.exit_code
    if all(reason.exit_code == EXIT_INCONCLUSIVE and reason.same_for_all for reason in found):
        text = f"no time could be judged: {first.same_for_all}"
        return m.Verdict(
            status=m.VerdictStatus.INCONCLUSIVE, text=text, reasons=_also(compared, root)
        )
    longer = clause("; ", _first_call(compared, first.worse))
    text = f"{_LEADS.get(code, '')}{first.text}{longer}"
    run = next((run for run in compared.runs if run.run == first.worse), None)
    if run is not None and run.causes and isinstance(run.explained_us, float):
        cause = run.causes[0]
        text += f"; likely cause: {clause('', _named(cause.place, root), ': ')}{cause.text}"
        if both := both_known(cause.explains_us, run.delta_us):
            part, whole = (short(us / 1000) for us in both)
            text += f" (accounts for {part} of the {whole} ms/{run.per})"
    status = _STATUS.get(code, m.VerdictStatus.INCONCLUSIVE)
    others = dict.fromkeys(each.text for each in found[1:])
    return m.Verdict(status=status, text=text, reasons=(*others, *_also(compared, root)))


def _named(place: m.Location | None, root: str) -> str:
    """FILE:LINE; empty without a place."""
    if place is None:
        return ""
    return f"{relative(place.file, root)}:{place.line}"


def _first_call(compared: m.Comparison, worse: m.RunKey | None = None) -> str:
    """A first call that became longer, of the run that leads or of any; it decides only with a
    limit of its own."""
    runs = [run for run in compared.runs if worse in (None, run.run)]
    calls = [
        named(run.metrics, name) for name in m.FIRST_CALLS for run in runs if compiles(run.metrics)
    ]
    longer = next(
        (call for call in calls if call and call.verdict is _WORSE and not call.decides), None
    )
    if longer is None or isinstance(longer.ratio, m.Skipped):
        return ""
    if both_known(longer.low, longer.high):
        return metric_words(longer)
    return f"{longer.name} {plain(longer.base)} -> {plain(longer.head)} s"


def metric_words(metric: m.ComparedMetric) -> str:
    """One metric with its change, interval and budget."""
    # the unit that every renderer gives it in
    if metric.unit == "us":
        metric = replace(metric, base=_in_ms(metric.base), head=_in_ms(metric.head), unit="ms")
    sides = f"{plain(metric.base)} -> {plain(metric.head)} {metric.unit}"
    if isinstance(metric.ratio, m.Skipped):
        return f"{metric.name} {sides}"
    change = f"{metric.name} {_percent(metric.ratio)}"
    if metric.time_of and metric.ratio != 1:
        change = f"{metric.name} {slower(metric.ratio)}"
    interval = both_known(metric.low, metric.high)
    if interval is None:
        return f"{change} ({sides}){clause(': ', metric.note)}"
    low, high = map(_percent, interval)
    within = f"95 % CI {low.removesuffix(' %')} to {high}"
    within += f", {metric.base_rounds} + {metric.head_rounds} rounds"
    if metric.budget_percent is not None:
        within += f"; limit {metric.budget_percent:g} %"
    # of one that is worse a note alters nothing
    if metric.verdict is _WORSE:
        return f"{change} ({within})"
    return f"{change} ({within}){clause('; ', metric.note)}"


@m.skippable
def _in_ms(us: m.Figure) -> float:
    return m.known(us) / 1000


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %"


def _passed(compared: m.Comparison, root: str) -> str:
    # with --fail-on never
    if worse := next(_regressions(compared, root), None):
        return f"worse, but --fail-on never: {worse.text}"
    times = _times(compared)
    faster = [metric for metric in times if metric.verdict is m.MetricVerdict.BETTER]
    in_both = sum(run.status is m.Presence.BOTH for run in compared.runs)
    runs = plural(in_both, "run")
    if faster:
        best = min(faster, key=_ratio)
        return f"better, {best.run.slug}: {metric_words(best)}"
    if not times:
        also = clause("", in_words(compared, root), "; ")
        return f"{also}{_nothing_new(compared)} in {runs}; no time was compared"
    timed = {metric.run for metric in times}
    if len(timed) < in_both:
        runs = f"{len(timed)} of {runs}"
    text = (
        f"no regression: every time is within its limit in {runs}, and there is "
        f"{_nothing_new(compared)}"
    )
    if compared.in_turn is not None and (longer := _first_call(compared)):
        return f"{longer}; {text}"
    return text


@m.otherwise(1.0)
def _ratio(metric: m.ComparedMetric) -> float:
    return m.known(metric.ratio)


def _nothing_new(compared: m.Comparison) -> str:
    """Among what both sides looked for; a new one that fails nothing may be there all the same."""
    text = "no new finding"
    if any(each.is_new for each in compared.findings):
        text += " that fails"
    if compared.not_looked_for:
        text += " by the rules that both sides looked for"
    return text


def _also(compared: m.Comparison, root: str) -> tuple[str, ...]:
    """What stands in spite of the verdict, and what holds whatever the times are."""
    work = in_words(compared, root)
    numbers = {
        "more new": sum(each.is_new and not each.fails for each in compared.findings),
        "fixed": sum(each.status is m.FindingStatus.FIXED for each in compared.findings),
        "more frequent": sum(each.grew for each in compared.findings),
    }
    unlooked = Counter(each.escaped for each in compared.findings if each.escaped)
    unknown = [
        f"{plural(number, 'finding')} not looked for in {side}" for side, number in unlooked.items()
    ]
    only = [
        f"{run.run.slug} is new: base did not run it"
        for run in compared.runs
        if run.status is m.Presence.NEW
    ]
    return (
        *(plural(number, f"{word} finding") for word, number in numbers.items() if number),
        *unknown,
        *only,
        *([work] if work else ()),
    )
