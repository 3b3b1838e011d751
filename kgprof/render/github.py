"""Workflow commands: GitHub Actions turns these lines of a job's log into annotations on the files of a pull request.

It keeps 10 errors, 10 warnings and 10 notices of a step, in the order in which they were printed, and drops the rest
in silence; so the worst come first and the last of a full ten says how many there are besides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kgprof import model as m
from kgprof.render import compare_words
from kgprof.render.finding_groups import cost_order, with_cost
from kgprof.render.visible import clip, visible
from kgprof.wording import relative

LIMIT = 10  # of each kind
COMMANDS = ("error", "warning", "notice")
_LENGTH = 2000  # characters of one message
_OF_LEVEL = {m.Level.ERROR: "error", m.Level.WARNING: "warning", m.Level.NOTE: "notice"}
_OF_STATUS = {"ok": "notice", "attention": "warning", "failed": "error", "inconclusive": "error"}
_ENDED_BADLY = "error"


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
        said = ",".join(f"{name}={escaped_property(value)}" for name, value in properties.items())
        return f"::{self.command} {said}::{escaped(self.message)}"


class Github:
    name = "github"
    suffix = ".annotations"

    def render(self, profile: m.Profile) -> str:
        everything = [
            *_verdict(profile),
            *_deaths(profile),
            *_budgets(profile),
            *_metrics(profile),
            *_findings(profile),
        ]
        lines = [a.text for command in COMMANDS for a in _fitted(command, everything)]
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
    last = Annotation(
        command=command, title="kgprof", message=f"{more:,} more of this kind; report.json holds them all"
    )
    return [*mine[: LIMIT - 1], last]


# ---------------------------------------------------------------- what there is to say


def _verdict(profile: m.Profile) -> list[Annotation]:
    text = "\n".join((profile.verdict.text, *profile.verdict.reasons))
    command = _OF_STATUS.get(profile.verdict.status, "error")
    return [Annotation(command=command, title=f"kgprof: {profile.verdict.status}", message=text)]


def _deaths(profile: m.Profile) -> list[Annotation]:
    return [
        Annotation(command=_ENDED_BADLY, title=f"kgprof: {run.key.slug}", message=run.how_it_ended)
        for run in profile.runs
        if run.exit.outcome != "ok"
    ]


def _budgets(profile: m.Profile) -> list[Annotation]:
    if profile.gate is None:
        return []
    command = "notice" if profile.gate.fail_on == "never" else "error"
    return [
        Annotation(command=command, title=f"kgprof budget {budget.metric}", message=_over(budget))
        for budget in profile.gate.budgets
        if budget.status == "exceeded"
    ]


def _over(budget: m.BudgetCheck) -> str:
    observed = budget.observed
    value = observed.reason if isinstance(observed, m.Skipped) else f"{_plain(observed)} {budget.unit}"
    return f"{budget.run.slug}: {budget.metric}: {value}, the budget is {_plain(budget.limit)} ({budget.origin})"


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
    found = profile.findings
    if profile.comparison is not None:
        found = tuple(one.finding for one in compare_words.of_status(profile.comparison.findings, m.FindingStatus.NEW))
    failing = frozenset(profile.findings[i] for i in profile.gate.failing) if profile.gate else frozenset()
    worst_first = sorted(found, key=lambda one: (bool(one.accepted), one not in failing, *cost_order([one])))
    return [_finding(finding, rules.get(finding.rule), profile.environment.source_root) for finding in worst_first]


def _finding(finding: m.Finding, rule: m.Rule | None, root: str) -> Annotation:
    place = finding.location
    accepted = f"accepted by {finding.accepted}: " if finding.accepted else ""
    return Annotation(
        command="notice" if finding.accepted else _OF_LEVEL[finding.level],
        title=f"{finding.rule} {rule.name}" if rule else finding.rule,
        message=f"{accepted}{with_cost(finding)}",
        file=relative(place.file, root) if place else "",
        line=max(1, place.line) if place else 0,
    )


def _plain(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:g}"
