"""What a comparison comes to: the exit code and the sentence. The first of ORDER that applies
leads."""

from collections import Counter
from collections.abc import Iterator, Sequence

from kgprof import model as m
from kgprof.compare.causes import relative_time
from kgprof.compare.findings import would_fail
from kgprof.compare.metrics import COMPILE, WARM_COMPILE, compiles, named, plain
from kgprof.errors import (
    EXIT_GATE_FAILED,
    EXIT_INCONCLUSIVE,
    EXIT_INTERRUPTED,
    EXIT_NOTHING_MEASURED,
    EXIT_WORKLOAD,
)
from kgprof.wording import plural, relative, short

ORDER = (
    EXIT_INTERRUPTED,
    EXIT_WORKLOAD,
    EXIT_GATE_FAILED,
    EXIT_NOTHING_MEASURED,
    EXIT_INCONCLUSIVE,
)
_STATUS = {EXIT_GATE_FAILED: m.VerdictStatus.FAILED, EXIT_WORKLOAD: m.VerdictStatus.FAILED}
_LEADS = {  # before the first reason, where the status alone would not say what it means
    EXIT_WORKLOAD: "no verdict, the workload failed: ",
    EXIT_NOTHING_MEASURED: "no verdict, nothing to compare: ",
    EXIT_INTERRUPTED: "no verdict, interrupted: ",
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
    all_of_them = (
        *_deaths(head, EXIT_WORKLOAD),
        *(
            _regressions(compared, head.environment.source_root)
            if compared.fail_on != "never"
            else ()
        ),
        *_open(base, compared),
    )
    return tuple(sorted(all_of_them, key=lambda reason: ORDER.index(reason.exit_code)))


def _deaths(profile: m.Profile, code: int, side: str = "") -> Iterator[Reason]:
    for run in profile.runs:
        for ended in (run.exit, run.probe_exit):
            if ended is not None and ended.outcome != "ok":
                interrupted = ended.outcome == "interrupted" and code == EXIT_WORKLOAD
                yield Reason(
                    EXIT_INTERRUPTED if interrupted else code, f"{side}{run.key.slug} {ended.words}"
                )


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
        where = (
            f" at {relative(new.location.file, root)}:{new.location.line}" if new.location else ""
        )
        slug = f"{new.run.slug}: " if new.run else ""
        yield Reason(EXIT_GATE_FAILED, f"{slug}new {new.rule}{where}: {new.message}")
    for run in compared.runs:
        for cause in run.causes:
            if cause.cause is m.CauseKind.RESULTS and not run.settings:
                yield Reason(EXIT_GATE_FAILED, f"{run.run.slug}: {cause.text}")


def _open(base: m.Profile, compared: m.Comparison) -> Iterator[Reason]:
    """What leaves it open whether head is worse."""
    if not any(run.status is m.Presence.BOTH for run in compared.runs):
        yield Reason(EXIT_NOTHING_MEASURED, "the two sides have no run in common")
    yield from _deaths(base, EXIT_INCONCLUSIVE, side="base: ")
    for run in compared.runs:
        if run.status is m.Presence.GONE:
            yield Reason(EXIT_INCONCLUSIVE, f"{run.run.slug} was not run in head")
    yield from _not_looked_for(compared)
    for run in compared.runs:
        deciding = [metric for metric in run.metrics if metric.decides]
        undecided = [metric for metric in deciding if metric.verdict is _INCONCLUSIVE]
        # the step and the evaluation of one run are of one mind mostly
        for metric in undecided[:1]:
            alike = metric.note if metric.undecided is m.Undecided.ONE_ROUND else ""
            text = f"{run.run.slug}: {metric_words(metric)}"
            yield Reason(EXIT_INCONCLUSIVE, text, same_for_all=alike)
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
    if not found:
        return m.Verdict(
            status=m.VerdictStatus.OK, text=_passed(compared, root), reasons=_also(compared)
        )
    first = found[0]
    code = first.exit_code
    if all(reason.exit_code == EXIT_INCONCLUSIVE and reason.same_for_all for reason in found):
        text = f"no time could be judged: {first.same_for_all}"
        return m.Verdict(status=m.VerdictStatus.INCONCLUSIVE, text=text, reasons=_also(compared))
    text = f"{_LEADS.get(code, '')}{first.text}{_first_call(compared, first)}"
    run = next((run for run in compared.runs if run.run == first.worse), None)
    if run is not None and run.causes and not isinstance(run.explained_us, m.Skipped):
        cause = run.causes[0]
        where = f"{relative(cause.place.file, root)}:{cause.place.line}: " if cause.place else ""
        text += f"; likely cause: {where}{cause.text}"
        if not isinstance(cause.explains_us, m.Skipped) and not isinstance(run.delta_us, m.Skipped):
            text += (
                f" (accounts for {short(cause.explains_us / 1000)} of the "
                f"{short(run.delta_us / 1000)} ms/{run.per})"
            )
    status = _STATUS.get(code, m.VerdictStatus.INCONCLUSIVE)
    others = dict.fromkeys(each.text for each in found[1:])
    return m.Verdict(status=status, text=text, reasons=(*others, *_also(compared)))


def _first_call(compared: m.Comparison, first: Reason) -> str:
    """A first call that became longer, of the run that leads or of any; it decides only with a
    limit of its own."""
    runs = [run for run in compared.runs if first.worse in (None, run.run)]
    calls = [
        named(run.metrics, name)
        for name in (COMPILE, WARM_COMPILE)
        for run in runs
        if compiles(run.metrics)
    ]
    longer = next(
        (call for call in calls if call and call.verdict is _WORSE and not call.decides), None
    )
    if longer is None or isinstance(longer.ratio, m.Skipped):
        return ""
    sides = (plain(side) for side in (longer.base, longer.head))
    return f"; {longer.name} {' -> '.join(sides)} s"


def metric_words(metric: m.ComparedMetric) -> str:
    """One metric with its change, interval and budget."""
    # the unit that every renderer gives it in
    scale, unit = (1000, "ms") if metric.unit == "us" else (1, metric.unit)
    base, head = (
        plain(side if isinstance(side, m.Skipped) else side / scale)
        for side in (metric.base, metric.head)
    )
    if isinstance(metric.ratio, m.Skipped):
        return f"{metric.name} {base} -> {head} {unit}"
    change = f"{metric.name} {_percent(metric.ratio)}"
    if metric.time_of and metric.ratio != 1:
        change = (
            f"{metric.name} {100 * abs(metric.ratio - 1):.1f} % "
            f"{'slower' if metric.ratio > 1 else 'faster'}"
        )
    if isinstance(metric.low, m.Skipped) or isinstance(metric.high, m.Skipped):
        note = f": {metric.note}" if metric.note else ""
        return f"{change} ({base} -> {head} {unit}){note}"
    rounds = f"{metric.base_rounds} + {metric.head_rounds} rounds"
    budget = f"; limit {metric.budget_percent:g} %" if metric.budget_percent is not None else ""
    within = (
        f"95 % CI {_percent(metric.low).removesuffix(' %')} to "
        f"{_percent(metric.high)}, {rounds}{budget}"
    )
    # which alters nothing about it
    note = f"; {metric.note}" if metric.note and metric.verdict is not _WORSE else ""
    return f"{change} ({within}){note}"


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %"


def _passed(compared: m.Comparison, root: str) -> str:
    # with --fail-on never
    if worse := next(_regressions(compared, root), None):
        return f"worse, but --fail-on never: {worse.text}"
    times = [
        metric
        for run in compared.runs
        for metric in run.metrics
        if metric.decides and metric.time_of
    ]
    faster = [metric for metric in times if metric.verdict is m.MetricVerdict.BETTER]
    runs = plural(sum(run.status is m.Presence.BOTH for run in compared.runs), "run")
    if faster:
        best = min(
            faster,
            key=lambda metric: metric.ratio if not isinstance(metric.ratio, m.Skipped) else 1.0,
        )
        return f"better, {best.run.slug}: {metric_words(best)}"
    if not times:
        return f"{_nothing_new(compared)} in {runs}; no time was compared"
    return (
        f"no regression: every time is within its limit in {runs}, and there is "
        f"{_nothing_new(compared)}"
    )


def _nothing_new(compared: m.Comparison) -> str:
    """Among what both sides looked for; a new one that fails nothing may be there all the same."""
    new = any(each.is_new for each in compared.findings)
    by = " by the rules that both sides looked for" if compared.not_looked_for else ""
    return f"no new finding that fails{by}" if new else f"no new finding{by}"


def _also(compared: m.Comparison) -> tuple[str, ...]:
    """What stands in spite of the verdict."""
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
    )
