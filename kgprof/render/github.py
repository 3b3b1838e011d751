"""Workflow commands: GitHub Actions turns these lines of a job's log into annotations on the files
of a pull request.

It keeps 10 errors, 10 warnings and 10 notices of a step, in the order in which they were printed,
and drops the rest in silence; so the worst come first and the last of a full ten says how many
there are besides.
"""

from collections.abc import Iterable

from kgprof import model as m
from kgprof.document import compare_words
from kgprof.document.escaping import clip
from kgprof.document.finding_list import cost_order, failing, level_in_ci, with_advice
from kgprof.document.quantity import amount
from kgprof.wording import clause, relative, visible

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


_DECIDES = {True: "error", False: "warning"}


Annotation = tuple[str, str]  # its command, and its line


class Github:
    name = "github"
    suffix = ".annotations"

    def render(self, profile: m.Profile) -> str:
        everything = [*_judged(profile), *_findings(profile)]
        lines: list[str] = []
        for command in COMMANDS:
            mine = [line for of, line in everything if of == command]
            if len(mine) > LIMIT:
                message = f"{len(mine) - LIMIT + 1:,} more of this kind in report.json"
                mine[LIMIT - 1 :] = [_annotation(command, "kgprof", message)[1]]
            lines += mine
        return "".join(lines)


def escaped(text: str) -> str:
    """A message: percent first, or it would escape the escapes."""
    shown = clip(visible(text, keep="\n\r"), _LENGTH)
    return shown.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def escaped_property(text: str) -> str:
    """A property also ends at a comma, and the properties at a colon."""
    return escaped(text).replace(":", "%3A").replace(",", "%2C")


# ---------------------------------------------------------------- what there is to say


def _annotation(
    command: str, title: str, message: str, place: m.Location | None = None, root: str = ""
) -> Annotation:
    """The command, and the line that gives it."""
    properties = {"title": title}
    if place and (file := relative(place.file, root)):
        line = str(max(1, place.line))
        properties = {"file": file, "line": line, "endLine": line, **properties}
    listed = ",".join(f"{name}={escaped_property(value)}" for name, value in properties.items())
    return command, f"::{command} {listed}::{escaped(message)}\n"


def _judged(profile: m.Profile) -> Iterable[Annotation]:
    """The verdict, the runs that died, the budgets that are exceeded, the metrics that are
    worse."""
    status = profile.verdict.status
    text = "\n".join((*profile.verdict.sentences, *profile.verdict.reasons))
    yield _annotation(_OF_STATUS[status], f"kgprof: {status}", text)
    for run in profile.runs:
        if run.exit.outcome != "ok":
            yield _annotation("error", f"kgprof: {run.slug}", run.how_it_ended)
    if profile.gate:
        yield from _budgets(profile.gate)
    if profile.comparison:
        for metric in compare_words.metrics_of(profile.comparison):
            if metric.verdict is m.MetricVerdict.WORSE:  # the verdict says what is inconclusive
                title = f"kgprof: regression of {metric.name}"
                yield _annotation(_DECIDES[metric.decides], title, compare_words.sentence(metric))


def _budgets(gate: m.Gate) -> Iterable[Annotation]:
    """Those that are exceeded: one that only warns without its limit, which nobody asked for."""
    for budget in gate.budgets:
        if budget.status not in (m.BudgetStatus.EXCEEDED, m.BudgetStatus.WARNED):
            continue
        seen = amount(m.known(budget.observed), budget.unit)
        text = f"{budget.run.slug}: {budget.metric}: {seen}"
        command = "warning"
        if budget.status is m.BudgetStatus.EXCEEDED:
            text += f", the budget is {amount(budget.limit, budget.unit)} ({budget.origin})"
            command = "error"
            if gate.fail_on is m.FailOn.NEVER:
                command = "notice"
        yield _annotation(command, f"kgprof budget {budget.metric}", text)


def _findings(profile: m.Profile) -> Iterable[Annotation]:
    """Of a comparison the new ones only: the others stand on lines that nobody is asked to look
    at."""
    rules = {rule.id: rule for rule in profile.rules}
    findings = profile.findings
    fails = failing(profile)
    if profile.comparison:
        new = compare_words.by_status(profile.comparison)[m.FindingStatus.NEW]
        findings = tuple(each.finding for each in new)
    for finding in sorted(
        findings, key=lambda f: (bool(f.accepted), f not in fails, *cost_order([f]))
    ):
        command = _OF_LEVEL[level_in_ci(finding, profile.gate, fails)]
        if finding.accepted:
            command = "notice"
        title = finding.rule
        if title in rules:
            title += f" {rules[title].name}"
        accepted = clause("accepted by ", finding.accepted, ": ")
        text = f"{accepted}{with_advice(finding)}"
        yield _annotation(command, title, text, finding.location, profile.source_root)
