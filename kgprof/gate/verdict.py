"""Pass or not: the exit code and the sentence, from budgets, findings and what was not observed."""

from collections.abc import Iterator, Sequence

from kgprof import coverage
from kgprof import model as m
from kgprof.collectors import rule_of
from kgprof.collectors.compile.compilations import COMPILE_FAILED
from kgprof.collectors.trust.disagreements import SOURCES_DISAGREE
from kgprof.errors import (
    EXIT_GATE_FAILED,
    EXIT_INCONCLUSIVE,
    EXIT_INTERRUPTED,
    EXIT_NOTHING_MEASURED,
    EXIT_WORKLOAD,
    WORST_FIRST,
)
from kgprof.gate.metrics import (
    BY_NAME,
    METRICS,
    OPTION,
    READS,
    applies,
    compiled_nothing,
    counts,
    nothing_captured,
    nothing_compiled,
    only_warns,
    why_not_observed,
)
from kgprof.wording import clause, plural, relative

_FAILS: dict[m.FailOn, tuple[m.Level, ...]] = {
    m.FailOn.ERROR: (m.Level.ERROR,),
    m.FailOn.WARNING: (m.Level.ERROR, m.Level.WARNING),
    m.FailOn.NEVER: (),
}


class Cause(m.Model, kw_only=False):
    """One thing that keeps the gate from passing."""

    exit_code: int
    text: str


def failing(
    findings: Sequence[m.Finding], budgets: Sequence[m.BudgetCheck], fail_on: m.FailOn
) -> tuple[int, ...]:
    """Indices of the findings that fail the gate: of an exceeded budget, or severe and counted by
    no budget."""
    levels = _FAILS[fail_on]
    indices = []
    for index, finding in enumerate(findings):
        # The gate says itself when sources disagree and when nothing was compiled.
        if (
            not levels
            or finding.accepted
            or rule_of(finding).topic in (m.Topic.SOURCES, m.Topic.COVERAGE)
        ):
            continue
        judging = _judging(finding, budgets)
        exceeded = any(budget.status is m.BudgetStatus.EXCEEDED for budget in judging)
        if exceeded or (finding.level in levels and not judging):
            indices.append(index)
    return tuple(indices)


def _judging(finding: m.Finding, budgets: Sequence[m.BudgetCheck]) -> list[m.BudgetCheck]:
    """The budgets that count it: those on its own run. One on another run says nothing about it."""
    judging = [b for b in budgets if not only_warns(b)]
    return [b for b in judging if finding.run == b.run and counts(BY_NAME[b.metric], finding)]


def causes(
    profile: m.Profile,
    findings: Sequence[m.Finding],
    budgets: Sequence[m.BudgetCheck],
    entries: Sequence[m.AcceptedFinding],
    settings: m.GateSettings,
) -> tuple[Cause, ...]:
    """Worst first."""
    known = []
    ended = []
    for run in (run for run in profile.runs if run.exit.outcome != "ok"):
        code = EXIT_WORKLOAD
        if run.exit.outcome == "interrupted":
            code = EXIT_INTERRUPTED
        refused = _refused(run, findings)
        known.append(Cause(code, _death(run, refused, profile.source_root)))
        ended.append(refused)
    # A budget on what was not seen (unless a worse cause above says it), or on what two sources see
    # differently; or of the command line for no run: a file's budgets stand for more runs than one
    # command may ask for.
    silent = {
        run.key
        for run in profile.runs
        if run.exit.outcome != "ok" or compiled_nothing(run, profile.findings)
    }
    needed = [b for b in budgets if not only_warns(b) and b.run not in silent]
    unseen = [(b, b.observed.reason) for b in needed if isinstance(b.observed, m.Skipped)]
    texts = [f"{b.run.slug}: {b.metric} not observed: {reason}" for b, reason in unseen]
    for finding in findings:
        if finding.rule == SOURCES_DISAGREE.id and not finding.accepted:
            texts.append(f"{finding.rule} {finding.alone}")
    for budget in settings.budgets:
        of_a_run = any(applies(budget, run.key) for run in profile.runs)
        if budget.origin == OPTION and not of_a_run:
            texts.append(f"the budget {budget.scope}:{budget.metric} matches no run")
    known += [
        *_failures(
            [each for each in findings if each not in ended], budgets, entries, settings.fail_on
        ),
        *_nothing_compiled(profile),
        *[Cause(EXIT_INCONCLUSIVE, text) for text in texts],
    ]
    said = any(cause.exit_code == EXIT_INTERRUPTED for cause in known)
    if profile.exit_code == EXIT_INTERRUPTED and not said:
        known.append(Cause(EXIT_INTERRUPTED, "interrupted"))
    return tuple(sorted(known, key=lambda cause: WORST_FIRST.index(cause.exit_code)))


def _refused(run: m.RunReport, findings: Sequence[m.Finding]) -> m.Finding | None:
    """The compilation that ended the run, if torch refused one and nobody caught that."""
    for finding in findings:
        place = finding.location
        if finding.rule != COMPILE_FAILED.id or finding.run != run.key or place is None:
            continue
        # torch names the line in its error ("from user code"); one that the program caught ended
        # nothing.
        if (
            run.exit.outcome == "raised"
            and f'File "{place.file}", line {place.line}, in' in run.exit.message
        ):
            return finding
    return None


def _death(run: m.RunReport, refused: m.Finding | None, root: str) -> str:
    """How it ended; the line that torch refused to compile comes first."""
    if refused is None or refused.location is None:
        return run.how_it_ended
    place = f"{relative(refused.location.file, root)}:{refused.location.line}"
    return f"{place}: {refused.rule} {refused.message}, which ended the program: {run.how_it_ended}"


def _failures(
    findings: Sequence[m.Finding],
    budgets: Sequence[m.BudgetCheck],
    entries: Sequence[m.AcceptedFinding],
    fail_on: m.FailOn,
) -> list[Cause]:
    if fail_on is m.FailOn.NEVER:
        return []
    texts = []
    for budget in budgets:
        if budget.status is m.BudgetStatus.EXCEEDED:
            seen = amount(m.known(budget.observed), budget.unit)
            limit = amount(budget.limit, budget.unit)
            texts.append(f"{budget.run.slug}: {seen} over the budget of {limit} {budget.metric}")
    for index in failing(findings, budgets, fail_on):
        if not _judging(findings[index], budgets):
            texts.append(f"{findings[index].rule} {findings[index].alone}")
    for entry in entries:
        if entry.status is m.AcceptedStatus.EXPIRED:
            where = _place(entry)
            texts.append(f"accepted finding {entry.rule} in {where} expired on {entry.expires}")
    return [Cause(EXIT_GATE_FAILED, text) for text in texts]


def _nothing_compiled(profile: m.Profile) -> list[Cause]:
    """Of any run: a run that silently stopped compiling shows no break and no recompile."""
    texts = []
    for run in profile.runs:
        if run.exit.outcome != "ok":
            continue
        if calls := _without_a_graph(run):
            ran = f"not one compiled graph ran in {plural(calls, 'call')} of compiled functions"
            texts.append(f"{run.slug}: {ran}{clause(' (', nothing_captured(run), ')')}")
        elif compiled_nothing(run, profile.findings):
            texts.append(f"{run.slug}: {_why_nothing(run, profile.options.workload)}")
    if not profile.runs:
        texts.append("nothing ran, so nothing was compiled")
    return [Cause(EXIT_NOTHING_MEASURED, text) for text in texts]


def _why_nothing(run: m.RunReport, workload: str) -> str:
    """And how to compile something, if kgprof was to run it as it stands."""
    if missing := nothing_captured(run):
        return f"no compilation was seen ({missing})"
    why = nothing_compiled(run)
    if run.key.mode != m.AS_IS:
        return why
    if run.script is None:
        return f"{why}; --mode default tries to compile the step"
    hidden = run.script.why_nothing_compiled(workload)
    return f"{why}; {hidden or 'a script is gated on what it compiles itself'}"


@m.otherwise(0)
def _without_a_graph(run: m.RunReport) -> int:
    """How many calls of compiled functions a run made, if no compiled graph ran in any; else 0."""
    counted = m.known(m.known(run.compile).compiled_calls)
    if counted.graph_runs or counted.unknown:
        return 0
    return counted.calls


# ---------------------------------------------------------------- in words


def verdict(
    profile: m.Profile,
    reasons: Sequence[Cause],
    budgets: Sequence[m.BudgetCheck],
    fail_on: m.FailOn,
) -> m.Verdict:
    if not reasons:
        return m.Verdict(status=m.VerdictStatus.OK, text=_passed(profile, budgets, fail_on))
    inconclusive = m.VerdictStatus.INCONCLUSIVE
    status, lead = {
        EXIT_GATE_FAILED: (m.VerdictStatus.FAILED, "gate failed"),
        EXIT_WORKLOAD: (m.VerdictStatus.FAILED, "no verdict, the workload failed"),
        EXIT_NOTHING_MEASURED: (inconclusive, "no verdict"),
        EXIT_INTERRUPTED: (inconclusive, "no verdict, interrupted"),
        EXIT_INCONCLUSIVE: (inconclusive, "no verdict, not everything was observed"),
    }[reasons[0].exit_code]
    others = tuple(cause.text for cause in reasons[1:])
    return m.Verdict(status=status, text=f"{lead}: {reasons[0].text}", reasons=others)


def _passed(profile: m.Profile, budgets: Sequence[m.BudgetCheck], fail_on: m.FailOn) -> str:
    runs = len(profile.runs)
    if fail_on is m.FailOn.NEVER:
        beyond = (m.BudgetStatus.EXCEEDED, m.BudgetStatus.WARNED)
        over = sum(budget.status in beyond for budget in budgets)
        exceeded = f"{over} of {plural(len(budgets), 'budget')} exceeded"
        return f"the gate cannot fail (--fail-on never); {exceeded}, {plural(runs, 'run')}"
    met = sum(budget.status is m.BudgetStatus.HELD for budget in budgets)
    text = f"gate passed: {plural(met, 'budget')} met in {plural(runs, 'run')}"
    if accepted := sum(bool(finding.accepted) for finding in profile.findings):
        text += f", {plural(accepted, 'finding')} accepted"
    if by_torch := sum(budget.made_by_torch for budget in budgets):
        text += f"; {plural(by_torch, 'break')} inside torch, made on purpose, not counted"
    if once := sum(finding.count for finding in profile.findings if finding.one_off):
        text += f"; {plural(once, 'recompile')} that happened once, not counted"
    for budget in budgets:
        if budget.status is m.BudgetStatus.WARNED:
            name = budget.metric
            seen = amount(m.known(budget.observed), budget.unit)
            text += f"; {budget.run.slug}: {seen} {name} ({OPTION} {name}=0 would fail)"
    return text


def amount(value: float, unit: str) -> str:
    if unit == "s":
        return f"{value:.1f} s"
    if unit != READS or value == int(value):
        return f"{value:,.0f}"
    if value < 1000:
        return f"{value:.4g}"
    return f"{value:,.1f}"


def _place(entry: m.AcceptedFinding) -> str:
    if entry.function:
        return f"{entry.file}:{entry.function}"
    return entry.file or "a whole run"


def unused(entries: Sequence[m.AcceptedFinding], profile: m.Profile) -> Iterator[str]:
    """An entry that matched nothing can go, if what it accepts was looked for in all that the
    workload runs."""
    for entry in entries:
        if entry.status is m.AcceptedStatus.UNUSED:
            unseen = _not_looked_for(entry.rule, profile)
            what_now = clause(", but not everything was looked at: ", unseen) or "; remove it"
            yield f"accepted finding {entry.rule} in {_place(entry)} matched nothing{what_now}"


def _not_looked_for(rule: str, profile: m.Profile) -> str:
    """Why findings of the rule may be missing; empty if every run was looked at."""
    if profile.options.strategies or profile.options.modes:
        return "only some strategies or modes were requested"
    for run in profile.runs:
        counting = [metric for metric in METRICS if rule in metric.rules]
        reasons = [why_not_observed(metric, run, profile) for metric in counting]
        if run.exit.outcome != "ok":
            reasons.append(f"the run {run.exit.words}")
        reasons.append(coverage.missing(profile.coverage, run.key, rule))
        if any(reasons):
            return f"{run.slug}: {next(filter(None, reasons))}"
    return ""
