"""SARIF 2.1.0 (OASIS, 2020): for code scanning. Every rule is listed, also when nothing was found.

GitHub keeps 5,000 results of a file and wants one physical location each, of which it reads the first; it tells
findings of two commits apart by ``partialFingerprints.primaryLocationLineHash``.

Of a comparison the results are head's findings, each with its ``baselineState`` (3.27.24): new, updated (more often
than before) or unchanged. Those that were fixed would be ``absent``; GitHub ignores that state and would show them as
open alerts, so they are told as notifications.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from kgprof import model as m
from kgprof.errors import EXIT_GATE_FAILED, EXIT_INCONCLUSIVE, EXIT_NOTHING_MEASURED, EXIT_OK
from kgprof.render import compare_words
from kgprof.render.finding_groups import with_cost
from kgprof.render.visible import visible
from kgprof.wording import relative

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
VERSION = "2.1.0"
LIMIT = 1000  # results
ROOT = "%SRCROOT%"
# A finding about a whole run has no line. GitHub refuses a result without a file; this name says what is meant.
NO_FILE = "no file associated with this finding"
_FINISHED = (EXIT_OK, EXIT_GATE_FAILED, EXIT_NOTHING_MEASURED, EXIT_INCONCLUSIVE)
_NOTIFIED = {"ok": "note", "attention": "warning", "failed": "error", "inconclusive": "warning"}


class Sarif:
    name = "sarif"
    suffix = ".sarif"

    def render(self, profile: m.Profile) -> str:
        document = {"$schema": SCHEMA, "version": VERSION, "runs": [_run(profile)]}
        return json.dumps(document, indent=2, ensure_ascii=True) + "\n"


def _run(profile: m.Profile) -> dict[str, Any]:
    shown = _new_first(profile)[:LIMIT]
    return {
        "tool": {"driver": _driver(profile)},
        "automationDetails": _automation(profile),
        **_baseline(profile),
        "originalUriBaseIds": {ROOT: {"description": {"text": "The top folder of the repository."}}},
        "columnKind": "unicodeCodePoints",
        "invocations": [_invocation(profile)],
        "results": _results(shown, profile),
        "properties": {
            "exitCode": profile.exit_code,
            "verdict": {"status": _text(profile.verdict.status), "text": _text(profile.verdict.text)},
            "findings": len(profile.findings),
            "levels": {level.value: sum(f.level is level for f in profile.findings) for level in m.Level},
            **_comparison(profile),
        },
    }


def _automation(profile: m.Profile) -> dict[str, str]:
    told = {"id": f"kgprof/{_text(profile.workload)}/{_text(profile.device)}/"}
    if profile.comparison is not None:
        told["guid"] = _guid(profile.comparison.head)
    return told


def _baseline(profile: m.Profile) -> dict[str, str]:
    """3.14.5: the run that ``baselineState`` refers to."""
    return {} if profile.comparison is None else {"baselineGuid": _guid(profile.comparison.base)}


def _guid(side: m.ComparedSide) -> str:
    """The same recording always has the same."""
    commit = side.git_commit if isinstance(side.git_commit, str) else ""
    said = _text("\n".join((side.source, side.created_utc, commit)))
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"kgprof:{said}"))


def _comparison(profile: m.Profile) -> dict[str, Any]:
    found = profile.comparison
    if found is None:
        return {}
    base, head = compare_words.sides(found)
    counts = {status: len(compare_words.of_status(found.findings, status)) for status in m.FindingStatus}
    metrics = [
        {
            "name": _text(metric.name),
            "run": _text(metric.run.slug),
            "verdict": _text(metric.verdict),
            "decides": metric.decides,
            "text": _text(compare_words.sentence(metric)),
        }
        for metric in compare_words.metrics_of(found)[:LIMIT]
    ]
    sides = {"base": _text(base), "head": _text(head), "comparable": found.comparable}
    return {"comparison": {**sides, "findings": counts, "metrics": metrics}}


def _new_first(profile: m.Profile) -> Sequence[m.Finding]:
    """So that a limit cuts what is unchanged."""
    if profile.comparison is None:
        return profile.findings
    new = {found.finding for found in compare_words.of_status(profile.comparison.findings, m.FindingStatus.NEW)}
    return sorted(profile.findings, key=lambda finding: finding not in new)


def _states(profile: m.Profile) -> dict[m.Finding, str]:
    if profile.comparison is None:
        return {}
    return {
        found.finding: "updated" if found.grew else found.status
        for found in profile.comparison.findings
        if found.status is not m.FindingStatus.FIXED
    }


# ---------------------------------------------------------------- the tool and how it went


def _driver(profile: m.Profile) -> dict[str, Any]:
    return {
        "name": "kgprof",
        "version": _text(profile.kgprof_version),
        "rules": [_rule(rule) for rule in _rules(profile)],
    }


def _rules(profile: m.Profile) -> list[m.Rule]:
    """Those of this version, and one that a finding names without being among them."""
    known = {rule.id for rule in profile.rules}
    strangers = dict.fromkeys(finding.rule for finding in profile.findings if finding.rule not in known)
    return [*profile.rules, *(_stranger(name) for name in strangers)]


def _stranger(name: str) -> m.Rule:
    unknown = "This rule is not described in the report."
    texts = {"name": name, "summary": unknown, "why": unknown, "example": unknown, "remedy": unknown}
    return msgspec.structs.replace(m.unknown_rule(name, m.Level.NOTE), **texts)


def _rule(rule: m.Rule) -> dict[str, Any]:
    text = f"{rule.summary}\n\nWhy: {rule.why}\n\nExample: {rule.example}\n\nWhat to do: {rule.remedy}"
    markdown = f"{rule.summary}\n\n**Why.** {rule.why}\n\n**Example.** {rule.example}\n\n**What to do.** {rule.remedy}"
    return {
        "id": _text(rule.id),
        "name": _text(rule.name),
        "shortDescription": {"text": _text(rule.summary)},
        "fullDescription": {"text": _text(rule.why)},
        "help": {"text": _text(text), "markdown": _text(markdown)},
        "defaultConfiguration": {"level": rule.level.value},
        "properties": {"problem.severity": _severity(rule.level), "precision": "very-high", "tags": ["torch.compile"]},
    }


def _severity(level: m.Level) -> str:
    return {m.Level.ERROR: "error", m.Level.WARNING: "warning", m.Level.NOTE: "recommendation"}[level]


def _invocation(profile: m.Profile) -> dict[str, Any]:
    return {
        "executionSuccessful": profile.exit_code in _FINISHED,
        "exitCode": profile.exit_code,
        "exitCodeDescription": _text(profile.verdict.text),
        "commandLine": _text(" ".join(profile.command)),
        "toolExecutionNotifications": _notifications(profile),
    }


def _notifications(profile: m.Profile) -> list[dict[str, Any]]:
    """The verdict, runs that died, what was not measured, and what was cut."""
    told = [(_NOTIFIED.get(profile.verdict.status, "warning"), profile.verdict.text)]
    told += [("warning", reason) for reason in profile.verdict.reasons]
    told += [("error", run.how_it_ended) for run in profile.runs if run.exit.outcome != "ok"]
    told += [
        ("note", f"not measured: {gap.what}{f' of {gap.run.slug}' if gap.run else ''}: {gap.reason}")
        for gap in profile.omissions
    ]
    if profile.comparison is not None:
        fixed = compare_words.of_status(profile.comparison.findings, m.FindingStatus.FIXED)
        told += [("note", f"fixed: {found.finding.rule}: {found.finding.alone}") for found in fixed[:LIMIT]]
        told += [("note", f"likely cause: {compare_words.cause_text(cause)}") for cause in profile.comparison.causes]
    cut = len(profile.findings) - LIMIT
    if cut > 0:
        told.append(("warning", f"{cut:,} of {len(profile.findings):,} findings are left out; report.json holds them"))
    return [{"level": level, "message": {"text": _text(text)}} for level, text in told]


# ---------------------------------------------------------------- findings


def _results(findings: Sequence[m.Finding], profile: m.Profile) -> list[dict[str, Any]]:
    index = {rule.id: number for number, rule in enumerate(_rules(profile))}
    states = _states(profile)
    seen: Counter[str] = Counter()
    results = []
    for finding in findings:
        mark = finding.fingerprint or f"{finding.rule}:{finding.run.slug if finding.run else ''}"
        seen[mark] += 1
        result = _result(finding, index[finding.rule], f"{_text(mark)}:{seen[mark]}", profile)
        results.append(result | ({"baselineState": states[finding]} if finding in states else {}))
    return results


def _result(finding: m.Finding, rule: int, mark: str, profile: m.Profile) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": _text(finding.rule),
        "ruleIndex": rule,
        "level": finding.level.value,
        "message": {"text": _text(with_cost(finding))},
        "locations": [_location(finding, profile.environment.source_root)],
        "partialFingerprints": {"primaryLocationLineHash": mark, "kgprof/v1": mark},
        "occurrenceCount": max(1, finding.count),
        "properties": _measured(finding),
    }
    related = [_related(place, profile.environment.source_root) for place in finding.related]
    if related:
        result["relatedLocations"] = related
    if profile.gate is not None:
        result["suppressions"] = _suppressions(finding)
    return result


def _measured(finding: m.Finding) -> dict[str, Any]:
    """In which run, and what it cost there, as figures: the message says it in words, at three digits."""
    run = {"run": _text(finding.run.slug)} if finding.run else {}
    cost = finding.cost
    if isinstance(cost, m.Skipped):
        return {**run, "cost": {"notMeasured": _text(cost.reason)}}
    return {
        **run,
        "cost": {
            "value": cost.value,
            "unit": _text(cost.unit),
            "what": _text(cost.what),
            "measuredIn": [name.value for name in cost.measured_in],
            "samples": cost.samples,
            **({"extremes": list(cost.extremes)} if cost.extremes else {}),
        },
    }


def _suppressions(finding: m.Finding) -> list[dict[str, Any]]:
    """An empty list says that suppressions were looked for and none applies."""
    if not finding.accepted:
        return []
    return [{"kind": "external", "justification": _text(finding.accepted)}]  # without a status it is an accepted one


def _location(finding: m.Finding, root: str) -> dict[str, Any]:
    place = finding.location
    if place is None:
        return {"physicalLocation": {"artifactLocation": {"uri": quote(NO_FILE)}, "region": _region(1, "")}}
    location: dict[str, Any] = {
        "physicalLocation": {"artifactLocation": _artifact(place, root), "region": _region(place.line, place.text)}
    }
    if place.function:
        location["logicalLocations"] = [{"fullyQualifiedName": _text(place.function), "kind": "function"}]
    return location


def _related(place: m.Location, root: str) -> dict[str, Any]:
    location: dict[str, Any] = {
        "physicalLocation": {"artifactLocation": _artifact(place, root), "region": _region(place.line, place.text)}
    }
    if place.function:
        location["message"] = {"text": f"in {_text(place.function)}"}
    return location


def _artifact(place: m.Location, root: str) -> dict[str, str]:
    """A file elsewhere has no relative name, and says so by its scheme."""
    path = relative(place.file, root) or NO_FILE
    encoded = quote(path.encode("utf-8", errors="replace"), safe="/")
    if path.startswith("/"):
        return {"uri": f"file://{encoded}"}
    if path.startswith(("~", "<")):  # the end of a path that was shortened: it is in no folder that SARIF could know
        return {"uri": encoded}
    return {"uri": encoded, "uriBaseId": ROOT}


def _region(line: int, text: str) -> dict[str, Any]:
    """Lines and columns count from 1; the end column is the one after the last character."""
    number = max(1, line)
    stripped = text.rstrip()
    start = len(stripped) - len(stripped.lstrip()) + 1
    region: dict[str, Any] = {"startLine": number, "endLine": number, "startColumn": start}
    region["endColumn"] = max(start + 1, len(stripped) + 1)
    if stripped:
        region["snippet"] = {"text": _text(stripped)}
    return region


def _text(text: str) -> str:
    """Never empty, which the schema forbids in places; lone surrogates, which JSON cannot carry, spelt out."""
    return visible(text, keep="\n\t") or "-"
