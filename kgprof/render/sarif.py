"""SARIF 2.1.0 (OASIS, 2020): for code scanning. Every rule is listed, also when nothing was found.

GitHub keeps 5,000 results of a file and wants one physical location each, of which it reads the
first; it tells findings of two commits apart by ``partialFingerprints.primaryLocationLineHash``.

Of a comparison the results are head's findings, each with its ``baselineState`` (3.27.24): new,
updated (more often than before) or unchanged. Every result has one, as the format demands; "new"
says there that the base did not detect it, and the property ``notLookedForInBase`` why, if base did
not look for it. Those that were fixed would be ``absent``; GitHub ignores that state and would show
them as open alerts, so they are told as notifications.
"""

import json
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

from msgspec.structs import replace

from kgprof import model as m
from kgprof.document import compare_words
from kgprof.document.finding_list import failing, level_in_ci, with_advice
from kgprof.errors import EXIT_GATE_FAILED, EXIT_INCONCLUSIVE, EXIT_NOTHING_MEASURED, EXIT_OK
from kgprof.wording import relative, visible

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
VERSION = "2.1.0"
LIMIT = 1000  # results
ROOT = "%SRCROOT%"
# A finding about a whole run has no line. GitHub refuses a result without a file; this name says
# what is meant.
NO_FILE = "no file associated with this finding"
NO_SUCH_RUN = "the base has no run of this name"
Object = dict[str, Any]  # of JSON
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
        return json.dumps(_visible(document), indent=2, ensure_ascii=True) + "\n"


def _visible(value: Any) -> Any:
    """No string is empty, which the schema forbids in places; lone surrogates, which JSON has not,
    are spelt out."""
    if isinstance(value, str):
        return visible(value, keep="\n\t") or "-"
    if isinstance(value, dict):
        return {name: _visible(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_visible(part) for part in value]
    return value


def _run(profile: m.Profile) -> Object:
    rules = {rule.id: rule for rule in profile.rules}
    words = dict.fromkeys(
        ("summary", "why", "example", "remedy"), "This rule is not described in the report."
    )
    for name in (finding.rule for finding in profile.findings):
        if name not in rules:  # it is not of this version
            rules[name] = replace(m.unknown_rule(name, m.Level.NOTE), name=name, **words)
    baseline = {}
    if profile.comparison:  # 3.14.5: the run that baselineState refers to
        baseline["baselineGuid"] = _guid(profile.comparison.base)
    run: Object = {
        "tool": {
            "driver": {
                "name": "kgprof",
                "version": profile.kgprof_version,
                "rules": [_rule(rule) for rule in rules.values()],
            }
        },
        "automationDetails": {"id": f"kgprof/{profile.workload}/{profile.device}/"},
        **baseline,
        "originalUriBaseIds": {
            ROOT: {"description": {"text": "The top folder of the repository."}}
        },
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {
                "executionSuccessful": profile.exit_code in _FINISHED,
                "exitCode": profile.exit_code,
                "exitCodeDescription": profile.verdict.text,
                "commandLine": " ".join(profile.command),
                "toolExecutionNotifications": [
                    {"level": level, "message": {"text": text}}
                    for level, text in _notified(profile)
                ],
            }
        ],
        "results": _results(profile, [*rules]),
        "properties": {
            "exitCode": profile.exit_code,
            "verdict": {"status": profile.verdict.status, "text": profile.verdict.text},
            "findings": len(profile.findings),
            "levels": {
                level.value: sum(f.level is level for f in profile.findings) for level in m.Level
            },
        },
    }
    if profile.comparison:
        run["automationDetails"]["guid"] = _guid(profile.comparison.head)
        run["properties"]["comparison"] = _comparison(profile.comparison)
    return run


def _guid(side: m.ComparedSide) -> str:
    """The same recording always has the same."""
    identity = _visible("\n".join((side.source, side.created_utc, side.commit)))
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"kgprof:{identity}"))


def _comparison(comparison: m.Comparison) -> Object:
    base, head = compare_words.sides(comparison)
    return {
        "base": base,
        "head": head,
        "comparable": comparison.comparable,
        "findings": {
            status: len(found) for status, found in compare_words.by_status(comparison).items()
        },
        "metrics": [
            {
                "name": metric.name,
                "run": metric.run.slug,
                "verdict": metric.verdict,
                "decides": metric.decides,
                "text": compare_words.sentence(metric),
            }
            for metric in compare_words.metrics_of(comparison)[:LIMIT]
        ],
    }


def _rule(rule: m.Rule) -> Object:
    parts = {"Why": rule.why, "Example": rule.example, "What to do": rule.remedy}
    text = [f"{name}: {said}" for name, said in parts.items()]
    markdown = [f"**{name}.** {said}" for name, said in parts.items()]
    return {
        "id": rule.id,
        "name": rule.name,
        "shortDescription": {"text": rule.summary},
        "fullDescription": {"text": rule.why},
        "help": {
            "text": "\n\n".join((rule.summary, *text)),
            "markdown": "\n\n".join((rule.summary, *markdown)),
        },
        "defaultConfiguration": {"level": rule.level},
        "properties": {
            "problem.severity": _SEVERITY[rule.level],
            "precision": "very-high",
            "tags": ["torch.compile"],
        },
    }


def _notified(profile: m.Profile) -> Iterator[tuple[str, str]]:
    """The verdict, runs that died, what was not measured, and what was cut; the level of each."""
    for sentence in profile.verdict.sentences:
        yield _NOTIFIED[profile.verdict.status], sentence
    for reason in profile.verdict.reasons:
        yield "warning", reason
    for run in profile.runs:
        if run.exit.outcome != "ok":
            yield "error", run.how_it_ended
    for gap in profile.omissions:
        what = gap.what
        if gap.run:
            what += f" of {gap.run.slug}"
        yield "note", f"not measured: {what}: {gap.reason}"
    if profile.comparison:
        fixed = compare_words.by_status(profile.comparison)[m.FindingStatus.FIXED]
        for row in fixed[:LIMIT]:
            yield "note", f"fixed: {row.finding.rule}: {row.finding.alone}"
        for line in compare_words.unchecked(profile.comparison):
            yield "note", line
        for cause in profile.comparison.causes:
            yield "note", f"likely cause: {compare_words.cause_text(cause)}"
    if (cut := len(profile.findings) - LIMIT) > 0:
        findings = f"{cut:,} of {len(profile.findings):,} findings"
        yield "warning", f"{findings} are left out; report.json holds them"


# ---------------------------------------------------------------- findings


def _results(profile: m.Profile, rules: Sequence[str]) -> list[Object]:
    """``rules``: their ids, in the order in which they are listed. What is new comes first,
    so that the limit cuts what is unchanged."""
    rows: dict[m.Finding, m.ComparedFinding] = {}
    if profile.comparison:
        of_head = (row for row in profile.comparison.findings if row.escaped != "head")
        rows = {row.finding: row for row in of_head if row.status is not m.FindingStatus.FIXED}
    root = profile.source_root
    fails = failing(profile)
    seen: Counter[str] = Counter()
    results = []
    for finding in sorted(profile.findings, key=lambda finding: _order(rows.get(finding)))[:LIMIT]:
        mark = finding.fingerprint or f"{finding.rule}:{_slug(finding)}"
        seen[mark] += 1
        result: Object = {
            "ruleId": finding.rule,
            "ruleIndex": rules.index(finding.rule),
            "level": level_in_ci(finding, profile.gate, fails),
            "message": {"text": with_advice(finding)},
            "locations": [_location(finding.location, root)],
            "partialFingerprints": dict.fromkeys(
                ("primaryLocationLineHash", "kgprof/v1"), f"{mark}:{seen[mark]}"
            ),
            "occurrenceCount": max(1, finding.count),
            "properties": _measured(finding),
        }
        if finding.related:
            result["relatedLocations"] = [
                _location(place, root, related=True) for place in finding.related
            ]
        if profile.gate:
            # An empty list says that suppressions were looked for and none applies. One without a
            # status is accepted.
            accepted = {"kind": "external", "justification": finding.accepted}
            result["suppressions"] = [accepted] * bool(finding.accepted)
        if profile.comparison:
            row = rows.get(finding)
            result["baselineState"] = _baseline_state(row)
            missing = NO_SUCH_RUN
            if row:
                missing = row.missing
            if missing:
                result["properties"]["notLookedForInBase"] = missing
        results.append(result)
    return results


def _order(row: m.ComparedFinding | None) -> bool:
    """What is known to be new comes first."""
    return not row or row.status is not m.FindingStatus.NEW


def _baseline_state(row: m.ComparedFinding | None) -> str:
    if not row or row.status in (m.FindingStatus.NEW, m.FindingStatus.NOT_LOOKED_FOR):
        return "new"
    if row.grew or row.status is m.FindingStatus.MOVED:
        return "updated"
    return "unchanged"


def _slug(finding: m.Finding) -> str:
    """Of its run; empty for one of the whole Profile."""
    if finding.run is None:
        return ""
    return finding.run.slug


def _measured(finding: m.Finding) -> Object:
    """In which run, and what it cost there, as figures: the message says it in words, at three
    digits."""
    measured: Object = {}
    if finding.run:
        measured["run"] = finding.run.slug
    known = finding.cost
    if isinstance(known, m.Skipped):
        return {**measured, "cost": {"notMeasured": known.reason}}
    measured["cost"] = {
        "value": known.value,
        "unit": known.unit,
        "what": known.what,
        "measuredIn": known.measured_in,
        "samples": known.samples,
    }
    if known.extremes:
        measured["cost"]["extremes"] = known.extremes
    return measured


def _location(place: m.Location | None, root: str, *, related: bool = False) -> Object:
    shown = place or m.Location(NO_FILE, 1)
    path = relative(shown.file, root) or NO_FILE
    artifact = {"uri": quote(path.encode("utf-8", errors="replace"), safe="/")}
    if path.startswith("/"):  # a file elsewhere has no relative name, and says so by its scheme
        artifact["uri"] = f"file://{artifact['uri']}"
    # the end of a path that was shortened is in no folder that SARIF could know
    elif place and not path.startswith(("~", "<")):
        artifact["uriBaseId"] = ROOT
    region = _region(shown.line, shown.text)
    location: Object = {"physicalLocation": {"artifactLocation": artifact, "region": region}}
    if shown.function and related:
        location["message"] = {"text": f"in {shown.function}"}
    elif shown.function:
        location["logicalLocations"] = [{"fullyQualifiedName": shown.function, "kind": "function"}]
    return location


def _region(line: int, text: str) -> Object:
    """Lines and columns count from 1; the end column is the one after the last character."""
    number = max(1, line)
    stripped = text.rstrip()
    start = len(stripped) - len(stripped.lstrip()) + 1
    region: Object = {
        "startLine": number,
        "endLine": number,
        "startColumn": start,
        "endColumn": max(start, len(stripped)) + 1,
    }
    if stripped:
        region["snippet"] = {"text": stripped}
    return region
