"""Pass or not: the exit code and the sentence, from budgets, findings and what was not observed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kgprof import model as m
from kgprof.collectors import rule_of
from kgprof.collectors.accepted import EXPIRED, UNUSED
from kgprof.collectors.compilations import COMPILE_FAILED
from kgprof.collectors.disagreements import SOURCES_DISAGREE
from kgprof.errors import (
    EXIT_GATE_FAILED,
    EXIT_INCONCLUSIVE,
    EXIT_INTERRUPTED,
    EXIT_NOTHING_MEASURED,
    EXIT_OK,
    EXIT_WORKLOAD,
)
from kgprof.gate.budgets import EXCEEDED, OPTION, Budget
from kgprof.gate.metrics import BY_NAME, READS, compiled_nothing, counts, nothing_captured
from kgprof.wording import plural, relative

_FAILS = {"error": (m.Level.ERROR,), "warning": (m.Level.ERROR, m.Level.WARNING), "never": ()}
_STATUS = {EXIT_OK: "ok", EXIT_GATE_FAILED: "failed", EXIT_WORKLOAD: "failed"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Cause:
    """One thing that keeps the gate from passing."""

    exit_code: int
    text: str


# Where several apply, the first of these leads.
ORDER = (EXIT_INTERRUPTED, EXIT_WORKLOAD, EXIT_GATE_FAILED, EXIT_NOTHING_MEASURED, EXIT_INCONCLUSIVE)


def failing(findings: Sequence[m.Finding], budgets: Sequence[m.BudgetCheck], fail_on: str) -> tuple[int, ...]:
    """Indices of the findings that fail the gate: of an exceeded budget, or severe and counted by no budget."""
    levels = _FAILS[fail_on]
    return tuple(index for index, finding in enumerate(findings) if levels and _fails(finding, budgets, levels))


def _fails(finding: m.Finding, budgets: Sequence[m.BudgetCheck], levels: Sequence[m.Level]) -> bool:
    if finding.accepted or rule_of(finding).topic in (m.Topic.SOURCES, m.Topic.COVERAGE):
        return False  # the gate says itself when sources disagree and when nothing was compiled
    if judging := _judging(finding, budgets):
        return any(budget.status == EXCEEDED for budget in judging)
    return finding.level in levels


def _judging(finding: m.Finding, budgets: Sequence[m.BudgetCheck]) -> list[m.BudgetCheck]:
    """The budgets that count it: those on its own run. One on another run says nothing about it."""
    return [b for b in budgets if finding.run == b.run and counts(BY_NAME[b.metric], finding)]


def causes(
    profile: m.Profile,
    findings: Sequence[m.Finding],
    budgets: Sequence[m.BudgetCheck],
    entries: Sequence[m.AcceptedFinding],
    fail_on: str,
    scopes: Sequence[Budget],
) -> tuple[Cause, ...]:
    """Worst first."""
    found = [
        *(
            Cause(exit_code=_ended(run), text=_death(run, findings, profile.environment.source_root))
            for run in profile.runs
            if run.exit.outcome != "ok"
        ),
        *_failures(findings, budgets, entries, fail_on),
        *_nothing_compiled(profile),
        *_inconclusive(profile, findings, budgets, scopes),
    ]
    if profile.exit_code == EXIT_INTERRUPTED and all(cause.exit_code != EXIT_INTERRUPTED for cause in found):
        found.append(Cause(exit_code=EXIT_INTERRUPTED, text="interrupted"))
    return tuple(sorted(found, key=lambda cause: ORDER.index(cause.exit_code)))


def _ended(run: m.RunReport) -> int:
    return EXIT_INTERRUPTED if run.exit.outcome == "interrupted" else EXIT_WORKLOAD


def _death(run: m.RunReport, findings: Sequence[m.Finding], root: str) -> str:
    """How it ended; where torch refused to compile and nobody caught that, the refused line comes first."""
    for finding in findings:
        place = finding.location
        if finding.rule != COMPILE_FAILED.id or finding.run != run.key or place is None:
            continue
        # torch names the line in its error ("from user code"); one that the program caught ended nothing.
        if run.exit.outcome == "raised" and f'File "{place.file}", line {place.line}, in' in run.exit.message:
            said = f"{relative(place.file, root)}:{place.line}: {finding.rule} {finding.message}"
            return f"{said}; the program ended because of it: {run.how_it_ended}"
    return run.how_it_ended


def _failures(
    findings: Sequence[m.Finding], budgets: Sequence[m.BudgetCheck], entries: Sequence[m.AcceptedFinding], fail_on: str
) -> list[Cause]:
    if fail_on == "never":
        return []
    over = [budget for budget in budgets if budget.status == EXCEEDED]
    severe = [findings[i] for i in failing(findings, budgets, fail_on) if not _judging(findings[i], budgets)]
    texts = [
        *(f"{b.run.slug}: {said(b)} over the budget of {amount(b.limit, b.unit)} {b.metric}" for b in over),
        *(f"{finding.rule} {finding.alone}" for finding in severe),
        *(f"accepted finding {e.rule} in {place(e)} expired on {e.expires}" for e in entries if e.status == EXPIRED),
    ]
    return [Cause(exit_code=EXIT_GATE_FAILED, text=text) for text in texts]


def _nothing_compiled(profile: m.Profile) -> list[Cause]:
    """Of any run: a run that silently stopped compiling shows no break and no recompile."""
    if not profile.runs:
        return [Cause(exit_code=EXIT_NOTHING_MEASURED, text="nothing ran, so nothing was compiled")]
    return [
        Cause(exit_code=EXIT_NOTHING_MEASURED, text=f"{run.key.slug}: nothing was compiled{_why_not(run)}")
        for run in profile.runs
        if run.exit.outcome == "ok" and compiled_nothing(run, profile.findings)
    ]


def _why_not(run: m.RunReport) -> str:
    known = nothing_captured(run)
    return f" ({known})" if known else ""


def _inconclusive(
    profile: m.Profile, findings: Sequence[m.Finding], budgets: Sequence[m.BudgetCheck], scopes: Sequence[Budget]
) -> list[Cause]:
    """A budget on what was not seen (unless a worse cause above says it), or on what two sources see differently."""
    silent = {run.key for run in profile.runs if run.exit.outcome != "ok" or compiled_nothing(run, profile.findings)}
    unseen = [
        f"{b.run.slug}: {b.metric} not observed: {b.observed.reason}"
        for b in budgets
        if isinstance(b.observed, m.Skipped) and b.run not in silent
    ]
    disagreed = [f for f in findings if f.rule == SOURCES_DISAGREE.id and not f.accepted]
    texts = [
        *unseen,
        *(f"{finding.rule} {finding.alone}" for finding in disagreed),
        *(f"the budget {b.scope}:{b.metric.name} is for a run that there is not" for b in _idle(profile, scopes)),
    ]
    return [Cause(exit_code=EXIT_INCONCLUSIVE, text=text) for text in texts]


def _idle(profile: m.Profile, budgets: Sequence[Budget]) -> list[Budget]:
    """Of the command line only: a file's budgets stand for more runs than one command may ask for."""
    return [b for b in budgets if b.origin == OPTION and not any(b.applies_to(run.key) for run in profile.runs)]


# ---------------------------------------------------------------- in words


def verdict(profile: m.Profile, found: Sequence[Cause], budgets: Sequence[m.BudgetCheck], fail_on: str) -> m.Verdict:
    if not found:
        return m.Verdict(status="ok", text=_passed(profile, budgets, fail_on))
    code = found[0].exit_code
    lead = {
        EXIT_GATE_FAILED: "gate failed",
        EXIT_WORKLOAD: "no verdict, the workload failed",
        EXIT_NOTHING_MEASURED: "no verdict, nothing was compiled",
        EXIT_INTERRUPTED: "no verdict, interrupted",
        EXIT_INCONCLUSIVE: "no verdict, not everything was observed",
    }[code]
    return m.Verdict(
        status=_STATUS.get(code, "inconclusive"),
        text=f"{lead}: {found[0].text}",
        reasons=tuple(cause.text for cause in found[1:]),
    )


def _passed(profile: m.Profile, budgets: Sequence[m.BudgetCheck], fail_on: str) -> str:
    runs = len(profile.runs)
    if fail_on == "never":
        over = sum(budget.status == EXCEEDED for budget in budgets)
        exceeded = f"{over} of {plural(len(budgets), 'budget')} exceeded"
        return f"nothing fails this gate (--fail-on never); {exceeded}, {plural(runs, 'run')}"
    accepted = sum(bool(finding.accepted) for finding in profile.findings)
    suffix = f", {plural(accepted, 'finding')} accepted" if accepted else ""
    return f"gate passed: {plural(len(budgets), 'budget')} held over {plural(runs, 'run')}{suffix}"


def said(budget: m.BudgetCheck) -> str:
    """What was observed, with its unit."""
    return "not observed" if isinstance(budget.observed, m.Skipped) else amount(budget.observed, budget.unit)


def amount(value: float, unit: str) -> str:
    if unit == "s":
        return f"{value:.1f} s"
    if unit != READS or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.4g}" if value < 1000 else f"{value:,.1f}"


def place(entry: m.AcceptedFinding) -> str:
    return f"{entry.file}:{entry.function}" if entry.function else entry.file or "a whole run"


def unused(entries: Sequence[m.AcceptedFinding]) -> tuple[str, ...]:
    return tuple(
        f"accepted finding {e.rule} in {place(e)} matched nothing; it can be removed"
        for e in entries
        if e.status == UNUSED
    )
