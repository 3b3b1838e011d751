"""A compared metric in words and as a row: what every renderer says of it, so that they cannot
disagree."""

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from kgprof import model as m
from kgprof.document.finding_list import Grouped, grouped, line_of, where
from kgprof.document.quantity import (
    DASH,
    count,
    figure,
    if_known,
    milliseconds,
    or_dash,
    plain_number,
    ratio,
    sign,
    size,
)
from kgprof.document.table import Cell, Column, Small, Table, Texts, plain
from kgprof.wording import clause, plural, slower

SYMBOLS = {
    m.MetricVerdict.WORSE: "\N{MULTIPLICATION X}",
    m.MetricVerdict.INCONCLUSIVE: "?",
    m.MetricVerdict.NOT_OBSERVED: DASH,
    m.MetricVerdict.BETTER: "\N{CHECK MARK}",
    m.MetricVerdict.SAME: "=",
}
_IN_PERCENT = ("us", "s", "bytes")
# or it may have
CHANGED = (m.MetricVerdict.WORSE, m.MetricVerdict.INCONCLUSIVE, m.MetricVerdict.BETTER)
_ONLY_IN = {m.Presence.NEW: "only in head", m.Presence.GONE: "only in base"}
_FIRST = 3  # causes of the first screen
_LINES = 6  # of either side of a changed line
STATUS_SYMBOLS = {
    m.FindingStatus.NEW: "+",
    m.FindingStatus.FIXED: "\N{CHECK MARK}",
    m.FindingStatus.MOVED: "\N{RIGHTWARDS ARROW}",
    m.FindingStatus.UNCHANGED: "=",
    m.FindingStatus.NOT_LOOKED_FOR: "?",
}


def metrics_of(comparison: m.Comparison) -> Sequence[m.ComparedMetric]:
    """Of all runs: what decides first; of that as of the others by verdict."""
    order = [*m.MetricVerdict]
    every = [metric for run in comparison.runs for metric in run.metrics]
    return tuple(
        sorted(every, key=lambda metric: (not metric.decides, order.index(metric.verdict)))
    )


def metric_table(metrics: Iterable[m.ComparedMetric], label: str = "") -> Table:
    """The page has the run below the metric, and no room for another column."""
    rows = []
    for metric in metrics:
        judged = Cell(
            metric.verdict,
            mark=SYMBOLS[metric.verdict],
            name=f"{SYMBOLS[metric.verdict]} {metric.verdict}",
            style=f"judged {metric.verdict.replace(' ', '-')}",
            wrong=metric.verdict is m.MetricVerdict.WORSE,
        )
        changed = Cell(change(metric))
        if not isinstance(metric.ratio, m.Skipped):
            changed = Cell(changed.text, value=metric.ratio)
        rows.append(
            (
                Cell(metric.name, below=(Small((metric.run.slug,), "detail block"),)),
                metric.run.slug,
                judged,
                value(metric, metric.base),
                value(metric, metric.head),
                changed,
                Cell(bounds(metric), qualified(metric)),
            )
        )
    headings = (
        Column("metric", style="short"),
        "run",
        Column("verdict", style="kind"),
        "base",
        "head",
        "change",
        Column("95 % interval", style="", details=2),
    )
    return plain(label, headings, rows, style="sortable compared", words=2)


def in_front(comparison: m.Comparison) -> Sequence[m.ComparedMetric]:
    """Those that decide or changed, what decides first: the table of a comment."""
    told = (m.MetricVerdict.WORSE, m.MetricVerdict.BETTER)
    every = metrics_of(comparison)
    return [metric for metric in every if metric.decides or metric.verdict in told]


def is_shown(metric: m.ComparedMetric) -> bool:
    """Whether a reader looks for it: what decides, what may have changed, and times."""
    if metric.decides or metric.verdict in CHANGED:
        return True
    return metric.time_of is not None and change(metric) != DASH


@m.otherwise(DASH)
def value(metric: m.ComparedMetric, side: m.Figure) -> str:
    """With its unit."""
    number = m.known(side)
    if metric.unit == "us":
        return f"{figure(number / 1000, 4)} ms"
    if metric.unit == "bytes":
        return size(round(number))
    if metric.unit == "s":
        return f"{figure(number)} s"
    if metric.rate and number > 0:
        return f"{plain_number(number)} ({figure(1000 / number)} {metric.rate})"
    if metric.unit.partition("/")[0] in metric.name:  # "kernels a step: 54", not "54 kernels/step"
        return plain_number(number)
    if number == 1:
        return f"1 {metric.unit.removesuffix('s')}"
    return f"{plain_number(number)} {metric.unit}"


@m.otherwise(DASH)
def change(metric: m.ComparedMetric) -> str:
    """Times and sizes in percent; a count as it stands, and in percent too where there is a
    ratio."""
    more = m.known(metric.head) - m.known(metric.base)
    counted = "0"
    if more:
        counted = f"{sign(more)}{plain_number(abs(more))}"
    if isinstance(metric.ratio, m.Skipped) or (not more and metric.ratio == 1):
        return counted
    percent = signed_percent(metric.ratio - 1)
    if metric.time_of or metric.unit in _IN_PERCENT:
        return percent
    return f"{sign(more)}{plain_number(abs(more))} ({percent})"


@m.otherwise(None)
def interval_of(metric: m.ComparedMetric) -> tuple[float, float] | None:
    """The ends of the 95 % interval of the change, as shares of base; None where there is none."""
    return m.known(metric.low) - 1, m.known(metric.high) - 1


def ends(metric: m.ComparedMetric) -> str:
    """The 95 % interval of the change; empty where there is none."""
    known = interval_of(metric)
    if not known:
        return ""
    low, high = map(signed_percent, known)
    return f"{low.removesuffix(' %')} to {high}"


def bounds(metric: m.ComparedMetric) -> str:
    """The interval, and the rounds that it stands on."""
    rounds = f"{count(metric.base_rounds)} + {plural(metric.head_rounds, 'round')}"
    return clause("", ends(metric), f", {rounds}")


def interval(metric: m.ComparedMetric) -> str:
    found = bounds(metric)
    return clause("95 % interval ", found)


def qualified(metric: m.ComparedMetric) -> Texts:
    """What limits it, and what a reader must know besides."""
    limit = allowed(metric)
    return tuple(filter(None, (limit and f"allowed: {limit}", metric.note)))


def allowed(metric: m.ComparedMetric) -> str:
    """How much worse it may become; empty where nothing limits it."""
    if not metric.decides:
        return ""
    most = allowed_percent(metric)
    return or_dash(most, lambda percent: f"at most {signed_percent(percent / 100)}", "no more")


def allowed_percent(metric: m.ComparedMetric) -> float | None:
    if metric.budget_percent is None:
        return metric.tolerance_percent
    return metric.budget_percent


def sentence(metric: m.ComparedMetric) -> str:
    """The whole of it: "step of fused.default: worse, +12.4 % (41.2 ms, was 36.7 ms; ...)"."""
    limit = allowed(metric)
    sides = f"{value(metric, metric.base)} → {value(metric, metric.head)}"
    inside = (sides, interval(metric), limit and f"allowed {limit}", metric.note)
    said = "; ".join(filter(None, inside))
    return f"{metric.name} of {metric.run.slug}: {metric.verdict}, {change(metric)} ({said})"


def signed_percent(share: float) -> str:
    rounded = f"{100 * abs(share):.1f}"
    if rounded == "0.0":
        return "0.0 %"
    if abs(share) >= 10:
        rounded = f"{100 * abs(share):,.0f}"
    return f"{sign(share)}{rounded} %"


def more_ms(us: float, of_us: float) -> str:
    """ "+4.50 ms", a part of a whole with as many decimals as that has."""
    decimals = len(milliseconds(abs(of_us)).partition(".")[2])
    rounded = f"{abs(us) / 1000:,.{decimals}f}"
    if set(rounded) <= {*"0."}:
        return "0 ms"
    return f"{sign(us)}{rounded} ms"


# ---------------------------------------------------------------- causes


def cause_text(cause: m.Cause) -> str:
    return "; ".join((cause.text, *besides(cause)))


def besides(cause: m.Cause) -> Iterator[str]:
    """Where it shows, if that is not the changed line, and what of the traces it accounts for."""
    if cause.changed and cause.location and cause.changed.line != cause.location.line:
        yield f"shows at {cause.location.file.rpartition('/')[2]}:{cause.location.line}"
    if cause.seen_in_traces:
        yield f"in the traces: {'; '.join(cause.seen_in_traces)}"


def first_causes(comparison: m.Comparison) -> Sequence[m.Cause]:
    """The first of those that account for some of the change; where none does, the first of all."""
    known = [cause for cause in comparison.causes if isinstance(cause.explains_us, float)]
    return known[:_FIRST] or comparison.causes[:1]


def finding_of(cause: m.Cause, comparison: m.Comparison) -> m.Finding | None:
    """That the cause is; None where it is none."""
    if not cause.fingerprint:
        return None
    every = (each.finding for each in comparison.findings)
    return next((one for one in every if one.fingerprint == cause.fingerprint), None)


def is_the_verdict(cause: m.Cause, profile: m.Profile) -> bool:
    """Whether the first line is the finding that it is: no metric is worse that decides."""
    comparison = profile.comparison
    assert comparison
    worse = m.MetricVerdict.WORSE
    if any(metric.decides and metric.verdict is worse for metric in metrics_of(comparison)):
        return False
    failing = [each.finding.fingerprint for each in comparison.findings if each.fails]
    return failing[:1] == [cause.fingerprint]


def first_difference(comparison: m.Comparison) -> m.WorkDifference | None:
    """Of what is compiled and run; None where nothing differs, or nothing was compared."""
    return next(iter(comparison.differences), None)


def changed_line(told: m.Cause | m.WorkDifference) -> Texts:
    """The changed line that it is put down to, as a unified diff without indentation; empty where
    none is known, or where its text is left out."""
    place = told.changed
    if place is None:
        return ()
    before: Sequence[str] = ()
    if told.was is not None:
        before = textwrap.dedent(told.was.text).splitlines()
    lines = [f"- {line}" for line in before[:_LINES] if line.strip()]
    if place.text.strip():
        lines.append(f"+ {place.text.strip()}")
    if lines:
        lines.insert(0, f"@@ {place.file.rpartition('/')[2]}:{place.line} @@")
    return lines


def accounts(comparison: m.Comparison, at_most: int | None = None) -> Texts:
    """What is true of every cause, then the account of each of the first ``at_most`` runs that has
    one."""
    each = (unexplained(comparison.causes), *(account(run) for run in comparison.runs[:at_most]))
    return [said for said in each if said]


def explains(cause: m.Cause, runs: Sequence[m.RunComparison]) -> str:
    """ "explains 4.1 of 4.5 ms a step"; or why it is not known how much."""
    if isinstance(cause.explains_us, m.Skipped):
        return f"effect on step time unknown: {cause.explains_us.reason}"
    run = next((run for run in runs if run.run == cause.run), None)
    if not run or isinstance(run.delta_us, m.Skipped):
        return f"accounts for {more_ms(cause.explains_us, cause.explains_us)}"
    of = run.delta_us
    return f"accounts for {more_ms(cause.explains_us, of)} of the {more_ms(of, of)} per {run.per}"


def unexplained(causes: Sequence[m.Cause]) -> str:
    """What is true of each of several causes, to be said once; empty where it is not."""
    reasons = {getattr(cause.explains_us, "reason", "") for cause in causes}
    if len(causes) < 2 or len(reasons) > 1:
        return ""
    return clause("Effect on step time unknown: ", reasons.pop())


@m.otherwise("")
def account(run: m.RunComparison) -> str:
    """What of a run's change the causes explain, and what is left; empty where no change was
    measured."""
    whole = m.known(run.delta_us)
    explained = m.known(run.explained_us)
    said = f"{run.run.slug}: {more_ms(whole, whole)} per {run.per}"
    if not explained:
        return f"{said}, unexplained"
    left = if_known(run.remainder_us, lambda us: f"{more_ms(us, whole)} not explained")
    return f"{said}; {', '.join((f'{more_ms(explained, whole)} explained', *left))}"


# ---------------------------------------------------------------- findings and sides


def by_status(comparison: m.Comparison) -> dict[m.FindingStatus, Sequence[m.ComparedFinding]]:
    """Every status, also one that no finding has."""
    return {
        status: [found for found in comparison.findings if found.status is status]
        for status in m.FindingStatus
    }


def by_place(
    same: Sequence[m.ComparedFinding],
) -> list[tuple[Grouped, list[m.ComparedFinding]]]:
    """Each group with what the comparison says of its members."""
    compared = {id(each.finding): each for each in same}
    groups = grouped(each.finding for each in same)
    return [(group, [compared[id(each)] for each in group.members]) for group in groups]


def not_looked_for(found: m.ComparedFinding) -> str:
    """Where it was not, and why; empty where both sides looked for it."""
    return clause(f"not looked for in {found.escaped}: ", found.missing)


def moved_from(found: m.ComparedFinding, root: str) -> str:
    """Its place in base; empty where it did not move."""
    if found.moved_from is None:
        return ""
    function = clause(" in ", found.moved_from.function)
    return f"moved from {line_of(found.moved_from, root)}{function}"


def headline(profile: m.Profile) -> m.Verdict:
    """The verdict for a page, whose figures and causes stand below it: what changed by how much, in
    one sentence; and how many processes that stands on. One that no time decided stays as it is."""
    comparison = profile.comparison
    verdict = profile.verdict
    assert comparison
    metrics = metrics_of(comparison)
    times = (each for each in metrics if each.decides and each.time_of)
    known = ((each, each.ratio) for each in times if isinstance(each.ratio, float))
    step, times_as_long = next(known, (None, 1.0))
    failed = verdict.status is m.VerdictStatus.FAILED
    if not step or (failed and step.verdict is not m.MetricVerdict.WORSE):
        return verdict
    text = f"{step.name.capitalize()} {slower(times_as_long)}"
    if (ends := interval_of(step)) is not None:
        low, high = ends
        if low * high > 0:
            low, high = sorted((abs(low), abs(high)))
        limit = or_dash(step.budget_percent, "; limit {:g} %".format, "")
        text += f" (95 % CI {100 * low:.1f} to {100 * high:.1f} %{limit})"
    calls = [each for each in metrics if each.name in m.FIRST_CALLS]
    longer = (each for each in calls if each.verdict is m.MetricVerdict.WORSE)
    first = next(longer, None)
    if first and isinstance(first.ratio, float):
        sides = f"{value(first, first.base)} to {value(first, first.head)}"
        called = f"{first.name} {ratio(first.ratio)} as long ({sides})"
        if comparison.in_turn and first.ratio > times_as_long:
            text = f"{called.capitalize()}; {text[:1].lower()}{text[1:]}"
        else:  # by one process each, which is no answer to lead with
            text += f"; {called}"
    if comparison.upgrade:
        text = f"{comparison.upgrade}: {text[0].lower()}{text[1:]}; {comparison.work}"
    processes = plural(step.head_rounds, "process", "processes")
    rounds = f"{step.run.slug}: {step.base_rounds} + {processes}"
    if comparison.in_turn:
        rounds += ", recorded in turn"
    trust = "; ".join(filter(None, (rounds, step.note, verdict.trust)))
    return replace(verdict, text=text, trust=trust)


def tally(comparison: m.Comparison) -> str:
    """ "3 new, 1 fixed, 7 unchanged" findings; those that one side did not look for by that
    side."""
    found = by_status(comparison)
    unknown = Counter(each.escaped for each in found.pop(m.FindingStatus.NOT_LOOKED_FOR))
    known = [
        f"{count(len(each))} {status}"
        for status, each in found.items()
        if each or status is not m.FindingStatus.MOVED
    ]
    known += [f"{count(number)} not looked for in {side}" for side, number in unknown.items()]
    return ", ".join(known)


def only_in(run: m.RunComparison) -> str:
    """Empty where it is in both."""
    return _ONLY_IN.get(run.status, "")


def unchecked(comparison: m.Comparison) -> Texts:
    """What only one side looked for, and why the other did not."""
    return [
        f"not looked for in {each.side}: {', '.join(each.rules)} ({each.reason})"
        for each in comparison.not_looked_for
    ]


def sides(comparison: m.Comparison) -> tuple[str, str]:
    """What base and head are called: their sources, and the commit where it is known."""
    return _called(comparison.base), _called(comparison.head)


def _called(side: m.ComparedSide) -> str:
    commit = side.commit[:10]
    if commit and side.git_dirty is True:
        commit += " with uncommitted changes"
    return f"{side.source}{clause(' (', commit, ')')}"


def settings_that_differ(comparison: m.Comparison) -> Sequence[m.ChangedFact]:
    """Of the command and of any run, those that make a step other work."""
    of_runs = (setting for run in comparison.runs for setting in run.settings)
    every = dict.fromkeys((*comparison.settings, *of_runs))
    return [one for one in every if one.name not in m.OF_THE_MEASUREMENT]


def comparability(comparison: m.Comparison) -> str:
    if comparison.upgrade:
        return (
            "Recorded in turn on one machine with two interpreters "
            f"({comparison.upgrade}), so times are compared."
        )
    if comparison.environment:
        differ = f"The environments differ in {plural(len(comparison.environment), 'fact')}"
        if comparison.comparable:
            return f"{differ}; times are compared anyway, as requested."
        return f"{differ}, so times are not compared."
    if differing := settings_that_differ(comparison):
        names = ", ".join(one.words.replace("->", "→") for one in differing)
        return (
            "Both sides have the same kind of machine and the same versions, but not the same "
            f"settings: {names}."
        )
    return (
        "Both sides have the same kind of machine, the same versions and environment variables, "
        "so times can be compared."
    )


def caused(cause: m.Cause, compared: m.Comparison, root: str) -> str:
    """Kind, run, place, sentence, and how much of the change it accounts for."""
    said = f"{where(cause.place, root)}{cause_text(cause)}"
    if cause.run:
        said = f"{cause.run.slug}: {said}"
    if not unexplained(compared.causes):
        said += f" ({explains(cause, compared.runs)})"
    return f"{cause.cause}: {said}"
