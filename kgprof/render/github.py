"""Workflow commands: GitHub Actions turns these lines of a job's log into annotations on the files of a pull request.

It keeps 10 errors, 10 warnings and 10 notices of a step, in the order in which they were printed, and drops the rest
in silence; so the worst come first and the last of a full ten says how many there are besides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kgprof import model as m
from kgprof.render import compare_words
from kgprof.render.escaping import clip, visible
from kgprof.render.finding_groups import cost_order, with_cost
from kgprof.wording import relative

LIMIT = 10  # of each kind
COMMANDS = ("error", "warning", "notice")
_LENGTH = 2000  # characters of one message
_OF_LEVEL = {m.Level.ERROR: "error", m.Level.WARNING: "warning", m.Level.NOTE: "notice"}
_OF_STATUS = {
    m.VerdictStatus.OK: "notice",
    m.VerdictStatus.ATTENTION: "warning",
    m.VerdictStatus.FAILED: "error",
    m.VerdictStatus.INCONCLUSIVE: "error",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Annotation:
    command: str
    title: str
    message: str
    file: str = ""
    line: int = 0

    @property
    def text(self) -> str:
        place = {"file": self.file, "line": str(self.line), "endLine": str(self.line)} if self.file else {}
        properties = {**place, "title": self.title}
        listed = ",".join(f"{name}={escaped_property(value)}" for name, value in properties.items())
        return f"::{self.command} {listed}::{escaped(self.message)}"


class Github:
    name = "github"
    suffix = ".annotations"

    def render(self, profile: m.Profile) -> str:
        everything = [*_verdict(profile), *_budgets(profile), *_metrics(profile), *_findings(profile)]
        lines = [annotation.text for command in COMMANDS for annotation in _fitted(command, everything)]
        return "".join(f"{line}\n" for line in lines)


def escaped(text: str) -> str:
    """A message: percent first, or it would escape the escapes."""
    shown = clip(visible(text, keep="\n\r"), _LENGTH)
    return shown.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def escaped_property(text: str) -> str:
    """A property also ends at a comma, and the properties at a colon."""
    return escaped(text).replace(":", "%3A").replace(",", "%2C")


def _fitted(command: str, everything: Sequence[Annotation]) -> list[Annotation]:
    mine = [annotation for annotation in everything if annotation.command == command]
    if len(mine) <= LIMIT:
        return mine
    more = len(mine) - LIMIT + 1
    message = f"{more:,} more of this kind; report.json holds them all"
    return [*mine[: LIMIT - 1], Annotation(command=command, title="kgprof", message=message)]


# ---------------------------------------------------------------- what there is to say


def _verdict(profile: m.Profile) -> list[Annotation]:
    """And the runs that died."""
    status = profile.verdict.status
    text = "\n".join((profile.verdict.text, *profile.verdict.reasons))
    return [
        Annotation(command=_OF_STATUS[status], title=f"kgprof: {status}", message=text),
        *(
            Annotation(command="error", title=f"kgprof: {run.key.slug}", message=run.how_it_ended)
            for run in profile.runs
            if run.exit.outcome != "ok"
        ),
    ]


def _budgets(profile: m.Profile) -> list[Annotation]:
    if profile.gate is None:
        return []
    command = "notice" if profile.gate.fail_on is m.FailOn.NEVER else "error"
    annotations = []
    for budget in profile.gate.budgets:
        if budget.status is m.BudgetStatus.EXCEEDED:
            seen = budget.observed
            value = seen.reason if isinstance(seen, m.Skipped) else f"{_plain(seen)} {budget.unit}"
            text = (
                f"{budget.run.slug}: {budget.metric}: {value}, the budget is {_plain(budget.limit)} ({budget.origin})"
            )
            annotations.append(Annotation(command=command, title=f"kgprof budget {budget.metric}", message=text))
    return annotations


def _metrics(profile: m.Profile) -> list[Annotation]:
    """What became worse; of what is inconclusive the verdict speaks."""
    if profile.comparison is None:
        return []
    return [
        Annotation(
            command="error" if metric.decides else "warning",
            title=f"kgprof: {metric.name} is worse",
            message=compare_words.sentence(metric),
        )
        for metric in compare_words.metrics_of(profile.comparison)
        if metric.verdict is m.MetricVerdict.WORSE
    ]


def _findings(profile: m.Profile) -> list[Annotation]:
    """Of a comparison the new ones only: the others stand on lines that nobody is asked to look at."""
    rules = {rule.id: rule for rule in profile.rules}
    findings = profile.findings
    if profile.comparison is not None:
        new = compare_words.of_status(profile.comparison.findings, m.FindingStatus.NEW)
        findings = tuple(each.finding for each in new)
    failing = frozenset(profile.findings[i] for i in profile.gate.failing) if profile.gate else frozenset()
    annotations = []
    for finding in sorted(findings, key=lambda f: (bool(f.accepted), f not in failing, *cost_order([f]))):
        place, rule = finding.location, rules.get(finding.rule)
        accepted = f"accepted by {finding.accepted}: " if finding.accepted else ""
        annotation = Annotation(
            command="notice" if finding.accepted else _OF_LEVEL[finding.level],
            title=f"{finding.rule} {rule.name}" if rule else finding.rule,
            message=f"{accepted}{with_cost(finding)}",
            file=relative(place.file, profile.environment.source_root) if place else "",
            line=max(1, place.line) if place else 0,
        )
        annotations.append(annotation)
    return annotations


def _plain(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:g}"
