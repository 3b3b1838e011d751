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
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from kgprof import model as m
from kgprof.errors import EXIT_GATE_FAILED, EXIT_INCONCLUSIVE, EXIT_NOTHING_MEASURED, EXIT_OK
from kgprof.render import compare_words
from kgprof.render.escaping import visible
from kgprof.render.finding_groups import with_cost
from kgprof.wording import relative

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
VERSION = "2.1.0"
LIMIT = 1000  # results
ROOT = "%SRCROOT%"
# A finding about a whole run has no line. GitHub refuses a result without a file; this name says what is meant.
NO_FILE = "no file associated with this finding"
_FINISHED = (EXIT_OK, EXIT_GATE_FAILED, EXIT_NOTHING_MEASURED, EXIT_INCONCLUSIVE)
_NOTIFIED = {
    m.VerdictStatus.OK: "note",
    m.VerdictStatus.ATTENTION: "warning",
    m.VerdictStatus.FAILED: "error",
    m.VerdictStatus.INCONCLUSIVE: "warning",
}
_SEVERITY = {m.Level.ERROR: "error", m.Level.WARNING: "warning", m.Level.NOTE: "recommendation"}


class Sarif:
    name = "sarif"
    suffix = ".sarif"

    def render(self, profile: m.Profile) -> str:
        document = {"$schema": SCHEMA, "version": VERSION, "runs": [_run(profile)]}
        return json.dumps(document, indent=2, ensure_ascii=True) + "\n"


def _run(profile: m.Profile) -> dict[str, Any]:
    rules = [*profile.rules, *_strangers(profile)]
    automation = {"id": f"kgprof/{_text(profile.workload)}/{_text(profile.device)}/"}
    baseline, compared = {}, {}
    if profile.comparison is not None:
        automation["guid"] = _guid(profile.comparison.head)
        baseline["baselineGuid"] = _guid(profile.comparison.base)  # 3.14.5: the run that baselineState refers to
        compared["comparison"] = _comparison(profile.comparison)
    return {
        "tool": {
            "driver": {
                "name": "kgprof",
                "version": _text(profile.kgprof_version),
                "rules": [_rule(rule) for rule in rules],
            }
        },
        "automationDetails": automation,
        **baseline,
        "originalUriBaseIds": {ROOT: {"description": {"text": "The top folder of the repository."}}},
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {
                "executionSuccessful": profile.exit_code in _FINISHED,
                "exitCode": profile.exit_code,
                "exitCodeDescription": _text(profile.verdict.text),
                "commandLine": _text(" ".join(profile.command)),
                "toolExecutionNotifications": _notifications(profile),
            }
        ],
        "results": _results(profile, {rule.id: number for number, rule in enumerate(rules)}),
        "properties": {
            "exitCode": profile.exit_code,
            "verdict": {"status": _text(profile.verdict.status), "text": _text(profile.verdict.text)},
            "findings": len(profile.findings),
            "levels": {level.value: sum(f.level is level for f in profile.findings) for level in m.Level},
            **compared,
        },
    }


def _strangers(profile: m.Profile) -> list[m.Rule]:
    """A rule that a finding names without being among those of this version."""
    known = {rule.id for rule in profile.rules}
    names = dict.fromkeys(finding.rule for finding in profile.findings if finding.rule not in known)
    words = dict.fromkeys(("summary", "why", "example", "remedy"), "This rule is not described in the report.")
    return [msgspec.structs.replace(m.unknown_rule(name, m.Level.NOTE), name=name, **words) for name in names]


def _guid(side: m.ComparedSide) -> str:
    """The same recording always has the same."""
    commit = side.git_commit if isinstance(side.git_commit, str) else ""
    identity = _text("\n".join((side.source, side.created_utc, commit)))
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"kgprof:{identity}"))


def _comparison(comparison: m.Comparison) -> dict[str, Any]:
    base, head = compare_words.sides(comparison)
    findings = comparison.findings
    metrics = [
        {
            "name": _text(metric.name),
            "run": _text(metric.run.slug),
            "verdict": _text(metric.verdict),
            "decides": metric.decides,
            "text": _text(compare_words.sentence(metric)),
        }
        for metric in compare_words.metrics_of(comparison)[:LIMIT]
    ]
    return {
        "base": _text(base),
        "head": _text(head),
        "comparable": comparison.comparable,
        "findings": {status: len(compare_words.of_status(findings, status)) for status in m.FindingStatus},
        "metrics": metrics,
    }


def _rule(rule: m.Rule) -> dict[str, Any]:
    text = f"{rule.summary}\n\nWhy: {rule.why}\n\nExample: {rule.example}\n\nWhat to do: {rule.remedy}"
    markdown = f"{rule.summary}\n\n**Why.** {rule.why}\n\n**Example.** {rule.example}\n\n**What to do.** {rule.remedy}"
    tags = {"problem.severity": _SEVERITY[rule.level], "precision": "very-high", "tags": ["torch.compile"]}
    return {
        "id": _text(rule.id),
        "name": _text(rule.name),
        "shortDescription": {"text": _text(rule.summary)},
        "fullDescription": {"text": _text(rule.why)},
        "help": {"text": _text(text), "markdown": _text(markdown)},
        "defaultConfiguration": {"level": rule.level.value},
        "properties": tags,
    }


def _notifications(profile: m.Profile) -> list[dict[str, Any]]:
    """The verdict, runs that died, what was not measured, and what was cut."""
    lines = [(_NOTIFIED[profile.verdict.status], profile.verdict.text)]
    lines += [("warning", reason) for reason in profile.verdict.reasons]
    lines += [("error", run.how_it_ended) for run in profile.runs if run.exit.outcome != "ok"]
    lines += [
        ("note", f"not measured: {gap.what}{f' of {gap.run.slug}' if gap.run else ''}: {gap.reason}")
        for gap in profile.omissions
    ]
    if profile.comparison is not None:
        fixed = [row.finding for row in compare_words.of_status(profile.comparison.findings, m.FindingStatus.FIXED)]
        lines += [("note", f"fixed: {finding.rule}: {finding.alone}") for finding in fixed[:LIMIT]]
        lines += [("note", f"likely cause: {compare_words.cause_text(cause)}") for cause in profile.comparison.causes]
    if (cut := len(profile.findings) - LIMIT) > 0:
        lines.append(("warning", f"{cut:,} of {len(profile.findings):,} findings are left out; report.json holds them"))
    return [{"level": level, "message": {"text": _text(text)}} for level, text in lines]


# ---------------------------------------------------------------- findings


def _results(profile: m.Profile, rules: Mapping[str, int]) -> list[dict[str, Any]]:
    """``rules``: the index of each id. What is new comes first, so that the limit cuts what is unchanged."""
    compared = profile.comparison.findings if profile.comparison is not None else ()
    states = {
        row.finding: "updated" if row.grew else row.status
        for row in compared
        if row.status is not m.FindingStatus.FIXED
    }
    new = {row.finding for row in compare_words.of_status(compared, m.FindingStatus.NEW)}
    seen: Counter[str] = Counter()
    results = []
    for finding in sorted(profile.findings, key=lambda finding: finding not in new)[:LIMIT]:
        mark = finding.fingerprint or f"{finding.rule}:{finding.run.slug if finding.run else ''}"
        seen[mark] += 1
        result = _result(finding, rules[finding.rule], f"{_text(mark)}:{seen[mark]}", profile)
        results.append(result | ({"baselineState": states[finding]} if finding in states else {}))
    return results


def _result(finding: m.Finding, rule: int, mark: str, profile: m.Profile) -> dict[str, Any]:
    root = profile.environment.source_root
    result: dict[str, Any] = {
        "ruleId": _text(finding.rule),
        "ruleIndex": rule,
        "level": finding.level.value,
        "message": {"text": _text(with_cost(finding))},
        "locations": [_location(finding.location, root)],
        "partialFingerprints": {"primaryLocationLineHash": mark, "kgprof/v1": mark},
        "occurrenceCount": max(1, finding.count),
        "properties": _measured(finding),
    }
    if finding.related:
        result["relatedLocations"] = [_location(place, root, related=True) for place in finding.related]
    if profile.gate is not None:
        # An empty list says that suppressions were looked for and none applies. One without a status is accepted.
        accepted = {"kind": "external", "justification": _text(finding.accepted)}
        result["suppressions"] = [accepted] if finding.accepted else []
    return result


def _measured(finding: m.Finding) -> dict[str, Any]:
    """In which run, and what it cost there, as figures: the message says it in words, at three digits."""
    cost: dict[str, Any]
    if isinstance(finding.cost, m.Skipped):
        cost = {"notMeasured": _text(finding.cost.reason)}
    else:
        cost = {
            "value": finding.cost.value,
            "unit": _text(finding.cost.unit),
            "what": _text(finding.cost.what),
            "measuredIn": [name.value for name in finding.cost.measured_in],
            "samples": finding.cost.samples,
            **({"extremes": list(finding.cost.extremes)} if finding.cost.extremes else {}),
        }
    return {**({"run": _text(finding.run.slug)} if finding.run else {}), "cost": cost}


def _location(place: m.Location | None, root: str, *, related: bool = False) -> dict[str, Any]:
    if place is None:
        return {"physicalLocation": {"artifactLocation": {"uri": quote(NO_FILE)}, "region": _region(1, "")}}
    location: dict[str, Any] = {
        "physicalLocation": {"artifactLocation": _artifact(place, root), "region": _region(place.line, place.text)}
    }
    if place.function and related:
        location["message"] = {"text": f"in {_text(place.function)}"}
    elif place.function:
        location["logicalLocations"] = [{"fullyQualifiedName": _text(place.function), "kind": "function"}]
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
