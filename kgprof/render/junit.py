"""JUnit XML: one test case for each budget, compared metric or rule on each run, and one for how
the run ended.

There is no official schema; CI systems agree on testsuites, testsuite, testcase with failure, error
and properties, and ignore a second case of the same name.
"""

import itertools
import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from xml.etree import ElementTree

from msgspec.structs import replace

from kgprof import coverage
from kgprof import model as m
from kgprof.document import compare_words
from kgprof.document.finding_list import failing, where, with_advice
from kgprof.document.quantity import counted
from kgprof.errors import EXIT_GATE_FAILED, EXIT_OK, EXIT_WORKLOAD
from kgprof.wording import clause, visible

EVERY_RUN = "all runs"
Property = tuple[str, str]  # its name and its value
# What XML 1.0 has no character for, escaped or not (section 2.2 of the recommendation).
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Case(m.Model, kw_only=False):
    """``failure``: it was observed and is wrong; ``error``: it could not be told. At most one of
    the two."""

    run: str
    name: str
    properties: Sequence[Property] = ()
    failure: str = ""
    error: str = ""
    output: str = ""


class Junit:
    name = "junit"
    suffix = ".xml"

    def render(self, profile: m.Profile) -> str:
        cases = list(_cases(profile))
        counts = {
            "tests": str(len(cases)),
            "failures": str(sum(bool(case.failure) for case in cases)),
            "errors": str(sum(bool(case.error) for case in cases)),
        }
        suites = ElementTree.Element("testsuites", {"name": "kgprof", **counts})
        suite = ElementTree.SubElement(
            suites, "testsuite", {"name": _xml(f"kgprof {profile.workload}"), **counts}
        )
        suite.set("timestamp", _xml(profile.created_utc))
        _write_properties(suite, _totals(profile))
        taken: set[tuple[str, str]] = set()
        for case in cases:
            _write(suite, case, taken)
        ElementTree.indent(suites)
        document = ElementTree.tostring(suites, encoding="unicode")
        return f'<?xml version="1.0" encoding="UTF-8"?>\n{document}\n'


def _write(suite: ElementTree.Element, case: Case, taken: set[tuple[str, str]]) -> None:
    """``taken``: run and name of the cases before it, to which its own are added."""
    run = _xml(case.run)
    name = _xml(case.name)
    names = itertools.chain([name], (f"{name} ({number})" for number in itertools.count(2)))
    unique = next(each for each in names if (run, each) not in taken)
    taken.add((run, unique))
    element = ElementTree.SubElement(suite, "testcase", {"classname": run, "name": unique})
    _write_properties(element, case.properties)
    for kind, text in (("failure", _xml(case.failure)), ("error", _xml(case.error))):
        if text:
            wrong = {"message": text.splitlines()[0], "type": kind}
            ElementTree.SubElement(element, kind, wrong).text = text
    if case.output:
        ElementTree.SubElement(element, "system-out").text = _xml(case.output)


def _write_properties(element: ElementTree.Element, properties: Iterable[Property]) -> None:
    if listed := tuple(properties):
        parent = ElementTree.SubElement(element, "properties")
        for name, value in listed:
            ElementTree.SubElement(parent, "property", {"name": name, "value": _xml(value)})


def _xml(text: str) -> str:
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", visible(text, keep="\n\t"))


# ---------------------------------------------------------------- what there is to say


def _totals(profile: m.Profile) -> Iterable[Property]:
    yield "verdict.status", profile.verdict.status
    yield "verdict.text", profile.verdict.text
    yield "exit.code", str(profile.exit_code)
    yield "findings", str(len(profile.findings))
    for level in m.Level:
        yield f"findings.{level}", str(sum(f.level is level for f in profile.findings))
    yield "device", profile.device
    yield "torch", profile.environment.torch
    if profile.comparison:
        yield from zip(("base", "head"), compare_words.sides(profile.comparison), strict=True)
        yield "comparable", str(profile.comparison.comparable).lower()
        for status, found in compare_words.by_status(profile.comparison).items():
            yield f"findings.{status.replace(' ', '-')}", str(len(found))


def _cases(profile: m.Profile) -> Iterable[Case]:
    """How each run ended, the budgets, the compared metrics, the rules."""
    for run in profile.runs:
        ended = Case(run.slug, "the run ended well")
        if run.exit.outcome != "ok":
            ended = replace(ended, error=run.how_it_ended)
        yield ended
    if not profile.runs:
        yield Case(EVERY_RUN, "something ran", error=profile.verdict.text)
    if profile.gate:
        yield from _budgets(profile.gate)
    if profile.comparison:
        yield from _metrics(profile, profile.comparison)
    yield from _rules(profile)


def _budgets(gate: m.Gate) -> Iterable[Case]:
    """Each budget, and each finding that is accepted."""
    outcome = "output" if gate.fail_on is m.FailOn.NEVER else "failure"
    for budget in gate.budgets:
        seen = budget.observed
        observed = _plain(seen)
        limit = _plain(budget.limit)
        properties = (
            ("value", observed),
            ("budget", limit),
            ("unit", budget.unit),
            ("accepted", str(budget.accepted)),
            ("origin", budget.origin),
        )
        case = Case(budget.run.slug, f"budget {budget.metric}", properties)
        if isinstance(seen, m.Skipped):
            case = replace(case, error=f"not observed: {seen.reason}")
        elif budget.status is m.BudgetStatus.EXCEEDED:
            over = f"{observed} {counted(seen, budget.unit)} over the budget of {limit}"
            case = replace(case, **{outcome: over})
        yield case
    for entry in gate.accepted:
        case = Case(EVERY_RUN, f"accepted {entry.rule} in {entry.place}")
        if outcome == "failure" and entry.status is m.AcceptedStatus.EXPIRED:
            case = replace(case, failure=f"expired on {entry.expires}: {entry.reason}")
        yield case


def _metrics(profile: m.Profile, comparison: m.Comparison) -> Iterable[Case]:
    """The verdict; then of what decides, worse is a failure, and what the measurement does not
    settle an error."""
    text = "\n".join((*profile.verdict.sentences, *profile.verdict.reasons))
    of_exit_code = {EXIT_OK: "output", EXIT_GATE_FAILED: "failure", EXIT_WORKLOAD: "failure"}
    outcome = of_exit_code.get(profile.exit_code, "error")
    yield replace(Case(EVERY_RUN, "head has no regression against base"), **{outcome: text})
    of_verdict = {
        m.MetricVerdict.WORSE: "failure",
        m.MetricVerdict.INCONCLUSIVE: "error",
        m.MetricVerdict.NOT_OBSERVED: "error",
    }
    for metric in compare_words.metrics_of(comparison):
        properties = [
            ("verdict", metric.verdict),
            ("decides", str(metric.decides).lower()),
            ("unit", metric.unit),
            ("base", _plain(metric.base)),
            ("head", _plain(metric.head)),
            ("ratio", _plain(metric.ratio)),
        ]
        for name, bound in (("ratio.low", metric.low), ("ratio.high", metric.high)):
            if not isinstance(bound, m.Skipped):
                properties.append((name, _plain(bound)))
        allowed = compare_words.allowed_percent(metric)
        if allowed is not None:
            properties.append(("allowed.percent", _plain(allowed)))
        outcome = "output"
        if metric.decides:
            outcome = of_verdict.get(metric.verdict, outcome)
        case = Case(metric.run.slug, f"compared {metric.name}", properties)
        yield replace(case, **{outcome: compare_words.sentence(metric)})


def _plain(value: m.Figure) -> str:
    """For programs: every digit, no separator and no exponent."""
    if isinstance(value, m.Skipped):
        return "not observed"
    if value == int(value):
        return f"{value:.0f}"
    return f"{Decimal(str(value)):f}"


def _rules(profile: m.Profile) -> Iterable[Case]:
    """Each rule that was looked for on each run, found or not; a finding about no run stands under
    "all runs"."""
    root = profile.source_root
    fails = _failing(profile)
    found: dict[tuple[str, str], list[m.Finding]] = {
        (run.slug, rule.id): []
        for run in profile.runs
        for rule in profile.rules
        if not coverage.missing(profile.coverage, run.key, rule.id) or _unseen(run, rule)
    }
    for finding in profile.findings:
        slug = EVERY_RUN
        if finding.run:
            slug = finding.run.slug
        found.setdefault((slug, finding.rule), []).append(finding)
    rules = {rule.id: rule for rule in profile.rules}
    runs = {run.slug: run for run in profile.runs}
    for (slug, name), same in found.items():
        wrong = "\n".join(_line(finding, root) for finding in same if finding in fails)
        others = "\n".join(_line(finding, root) for finding in same if finding not in fails)
        case = Case(slug, name, failure=wrong, output=others)
        if same:
            case = replace(case, properties=(("findings", str(len(same))),))
        if rule := rules.get(name):
            case = replace(case, name=f"{rule.id} {rule.name}")
            if not wrong and slug in runs:
                case = replace(case, error=_unseen(runs[slug], rule))
        yield case


def _failing(profile: m.Profile) -> frozenset[m.Finding]:
    """The gate's own answer, or the comparison's; without either, the errors."""
    if profile.gate:
        return failing(profile)
    if profile.comparison:
        return frozenset(found.finding for found in profile.comparison.findings if found.fails)
    return frozenset(finding for finding in profile.findings if finding.level is m.Level.ERROR)


def _unseen(run: m.RunReport, rule: m.Rule) -> str:
    """A rule about compilation has nothing to say on a run whose compilation was not watched."""
    about_compilation = rule.topic in (m.Topic.COMPILATION, m.Topic.CUDA_GRAPHS)
    if about_compilation and isinstance(run.compile, m.Skipped):
        return f"not observed: {run.compile.reason}"
    return ""


def _line(finding: m.Finding, root: str) -> str:
    accepted = clause(" (accepted by ", finding.accepted, ")")
    return (
        f"{where(finding.location, root)}{finding.level.value} {finding.rule}: "
        f"{with_advice(finding)}{accepted}"
    )
