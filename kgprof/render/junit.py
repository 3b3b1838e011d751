"""JUnit XML: one test case for each budget, compared metric or rule on each run, and one for how the run ended.

There is no official schema; CI systems agree on testsuites, testsuite, testcase with failure, error and properties,
and ignore a second case of the same name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from xml.etree import ElementTree

from kgprof import model as m
from kgprof.errors import EXIT_GATE_FAILED, EXIT_OK, EXIT_WORKLOAD
from kgprof.render import compare_words
from kgprof.render.checked_rules import was_watched
from kgprof.render.finding_groups import with_cost
from kgprof.render.visible import visible
from kgprof.wording import relative

EVERY_RUN = "all runs"
# What XML 1.0 has no character for, escaped or not (section 2.2 of the recommendation).
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """``failure``: it was observed and is wrong; ``error``: it could not be told. At most one of the two."""

    run: str
    name: str
    properties: tuple[tuple[str, str], ...] = ()
    failure: str = ""
    error: str = ""
    said: tuple[str, ...] = ()


class Junit:
    name = "junit"
    suffix = ".xml"

    def render(self, profile: m.Profile) -> str:
        cases = [*_endings(profile), *_budgets(profile), *_metrics(profile), *_rules(profile)]
        counts = {
            "tests": str(len(cases)),
            "failures": str(sum(bool(case.failure) for case in cases)),
            "errors": str(sum(bool(case.error) for case in cases)),
        }
        suites = ElementTree.Element("testsuites", {"name": "kgprof", **counts})
        suite = ElementTree.SubElement(suites, "testsuite", {"name": _xml(f"kgprof {profile.workload}"), **counts})
        suite.set("timestamp", _xml(profile.created_utc))
        _write_properties(suite, _totals(profile))
        for run, name, case in _uniquely_named(cases):
            element = ElementTree.SubElement(suite, "testcase", {"classname": run, "name": name})
            _write_properties(element, case.properties)
            for kind, text in (("failure", _xml(case.failure)), ("error", _xml(case.error))):
                if text:
                    what = {"message": text.splitlines()[0], "type": kind}
                    ElementTree.SubElement(element, kind, what).text = text
            if case.said:
                ElementTree.SubElement(element, "system-out").text = _xml("\n".join(case.said))
        ElementTree.indent(suites)
        return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(suites, encoding="unicode") + "\n"


def _totals(profile: m.Profile) -> list[tuple[str, str]]:
    totals = [
        ("verdict.status", str(profile.verdict.status)),
        ("verdict.text", profile.verdict.text),
        ("exit.code", str(profile.exit_code)),
        ("findings", str(len(profile.findings))),
        *((f"findings.{level.value}", str(sum(f.level is level for f in profile.findings))) for level in m.Level),
        ("device", profile.device),
        ("torch", profile.environment.torch),
    ]
    if (comparison := profile.comparison) is not None:
        base, head = compare_words.sides(comparison)
        totals += [("base", base), ("head", head), ("comparable", str(comparison.comparable).lower())]
        for status in m.FindingStatus:
            totals.append((f"findings.{status}", str(len(compare_words.of_status(comparison.findings, status)))))
    return totals


# ---------------------------------------------------------------- the cases


def _endings(profile: m.Profile) -> Iterable[Case]:
    for run in profile.runs:
        died = "" if run.exit.outcome == "ok" else run.how_it_ended
        yield Case(run=run.key.slug, name="the run ended well", error=died)
    if not profile.runs:
        yield Case(run=EVERY_RUN, name="something ran", error=profile.verdict.text)


def _budgets(profile: m.Profile) -> Iterable[Case]:
    if profile.gate is None:
        return
    judged = profile.gate.fail_on is not m.FailOn.NEVER
    for budget in profile.gate.budgets:
        unseen, observed, over = "", "", ""
        if isinstance(budget.observed, m.Skipped):
            unseen = f"not observed: {budget.observed.reason}"
        else:
            observed = _plain(budget.observed)
        if budget.status is m.BudgetStatus.EXCEEDED:
            over = f"{observed} {budget.unit} over the budget of {_plain(budget.limit)}"
        yield Case(
            run=budget.run.slug,
            name=f"budget {budget.metric}",
            properties=(
                ("value", observed or "not observed"),
                ("budget", _plain(budget.limit)),
                ("unit", budget.unit),
                ("accepted", str(budget.accepted)),
                ("origin", budget.origin),
            ),
            failure=over if judged else "",
            error=unseen,
            said=(over,) if over and not judged else (),
        )
    for entry in profile.gate.accepted:
        expired = entry.status is m.AcceptedStatus.EXPIRED and judged
        place = " ".join(filter(None, (entry.file, entry.function, entry.graph_break_id, entry.library)))
        yield Case(
            run=EVERY_RUN,
            name=f"accepted {entry.rule} in {place}",
            failure=f"expired on {entry.expires}: {entry.reason}" if expired else "",
        )


def _metrics(profile: m.Profile) -> Iterable[Case]:
    """The verdict; then of what decides, worse is a failure, and what the measurement does not settle an error."""
    if profile.comparison is None:
        return
    said = "\n".join((profile.verdict.text, *profile.verdict.reasons))
    failed = profile.exit_code in (EXIT_GATE_FAILED, EXIT_WORKLOAD)
    yield Case(
        run=EVERY_RUN,
        name="head is not worse than base",
        failure=said if failed else "",
        error=said if profile.exit_code != EXIT_OK and not failed else "",
        said=(said,) if profile.exit_code == EXIT_OK else (),
    )
    for metric in compare_words.metrics_of(profile.comparison):
        said = compare_words.sentence(metric)
        failed = metric.decides and metric.verdict is m.MetricVerdict.WORSE
        untold = metric.decides and metric.verdict in (m.MetricVerdict.INCONCLUSIVE, m.MetricVerdict.NOT_OBSERVED)
        yield Case(
            run=metric.run.slug,
            name=f"compared {metric.name}",
            properties=_of_metric(metric),
            failure=said if failed else "",
            error=said if untold else "",
            said=() if failed or untold else (said,),
        )


def _of_metric(metric: m.ComparedMetric) -> tuple[tuple[str, str], ...]:
    sides = (("base", metric.base), ("head", metric.head), ("ratio", metric.ratio))
    bounds = (("ratio.low", metric.low), ("ratio.high", metric.high), ("ratio.machine", metric.machine))
    allowed = metric.budget_percent if metric.budget_percent is not None else metric.tolerance_percent
    return (
        ("verdict", metric.verdict),
        ("decides", str(metric.decides).lower()),
        ("unit", metric.unit),
        *((name, "not observed" if isinstance(side, m.Skipped) else _plain(side)) for name, side in sides),
        *((name, _plain(bound)) for name, bound in bounds if not isinstance(bound, m.Skipped)),
        *((("allowed.percent", _plain(allowed)),) if allowed is not None else ()),
    )


def _plain(value: float) -> str:
    """For programs: every digit, no separator and no exponent."""
    return f"{value:.0f}" if value == int(value) else f"{Decimal(str(value)):f}"


def _rules(profile: m.Profile) -> Iterable[Case]:
    """Each rule that was looked for on each run, found or not; a finding about no run stands under "all runs"."""
    root = profile.environment.source_root
    fails = _failing(profile)
    found: dict[tuple[str, str], list[int]] = {
        (run.key.slug, rule.id): []
        for run in profile.runs
        for rule in profile.rules
        if was_watched(rule, run, profile.device) or _unseen(run, rule)
    }
    for index, finding in enumerate(profile.findings):
        found.setdefault((finding.run.slug if finding.run else EVERY_RUN, finding.rule), []).append(index)
    rules, runs = {rule.id: rule for rule in profile.rules}, {run.key.slug: run for run in profile.runs}
    for (run, name), indices in found.items():
        rule = rules.get(name)
        lines = [_line(profile.findings[i], root) for i in indices]
        wrong = [line for i, line in zip(indices, lines, strict=True) if i in fails]
        yield Case(
            run=run,
            name=f"{rule.id} {rule.name}" if rule else name,
            properties=(("findings", str(len(indices))),) if indices else (),
            failure="\n".join(wrong),
            error=_unseen(runs.get(run), rule) if not wrong else "",
            said=tuple(line for line in lines if line not in wrong),
        )


def _failing(profile: m.Profile) -> frozenset[int]:
    """The gate's own answer, or the comparison's; without either, the errors."""
    if profile.gate is not None:
        return frozenset(profile.gate.failing)
    if profile.comparison is not None:
        failing = {found.finding for found in profile.comparison.findings if found.fails}
        return frozenset(index for index, finding in enumerate(profile.findings) if finding in failing)
    return frozenset(index for index, finding in enumerate(profile.findings) if finding.level is m.Level.ERROR)


def _unseen(run: m.RunReport | None, rule: m.Rule | None) -> str:
    """A rule about compilation has nothing to say on a run whose compilation was not watched."""
    if run is None or rule is None or rule.topic not in (m.Topic.COMPILATION, m.Topic.CUDA_GRAPHS):
        return ""
    return f"not observed: {run.compile.reason}" if isinstance(run.compile, m.Skipped) else ""


def _line(finding: m.Finding, root: str) -> str:
    place = finding.location
    where = f"{relative(place.file, root)}:{place.line}: " if place else ""
    accepted = f" (accepted by {finding.accepted})" if finding.accepted else ""
    return f"{where}{finding.level.value} {finding.rule}: {with_cost(finding)}{accepted}"


# ---------------------------------------------------------------- as XML


def _uniquely_named(cases: Sequence[Case]) -> Iterable[tuple[str, str, Case]]:
    seen: Counter[tuple[str, str]] = Counter()
    taken = set()
    for case in cases:
        run, name = _xml(case.run), _xml(case.name)
        unique = name
        while (run, unique) in taken:
            seen[run, name] += 1
            unique = f"{name} ({seen[run, name] + 1})"
        taken.add((run, unique))
        yield run, unique, case


def _write_properties(element: ElementTree.Element, properties: Sequence[tuple[str, str]]) -> None:
    if not properties:
        return
    parent = ElementTree.SubElement(element, "properties")
    for name, value in properties:
        ElementTree.SubElement(parent, "property", {"name": name, "value": _xml(value)})


def _xml(text: str) -> str:
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", visible(text, keep="\n\t"))
