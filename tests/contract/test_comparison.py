"""A comparison in every format: verdicts, counts and states are read back, and are those of the
JSON."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from kgprof.document import compare_words
from kgprof.model import Comparison, FindingStatus, Profile
from kgprof.render import by_name
from tests.render import profiles

STATES: dict[str, Callable[[], Profile]] = {
    "comparison": profiles.comparison,
    "other_machine": profiles.other_machine,
    "hostile_comparison": profiles.hostile_comparison,
}
every_comparison = pytest.mark.parametrize("state", STATES)
# of the hostile one the words are not ours, so they are not searched for
READABLE = ["comparison", "other_machine"]


def compared(state: str) -> tuple[Profile, Comparison]:
    profile = STATES[state]()
    assert profile.comparison is not None
    return profile, profile.comparison


def verdicts(found: Comparison) -> Counter[str]:
    return Counter(metric.verdict for run in found.runs for metric in run.metrics)


def statuses(found: Comparison) -> dict[str, int]:
    return {status: sum(one.status == status for one in found.findings) for status in FindingStatus}


def sarif(profile: Profile) -> dict[str, Any]:
    run = json.loads(by_name("sarif").render(profile))["runs"][0]
    assert isinstance(run, dict)
    return run


def cases(profile: Profile) -> list[ElementTree.Element]:
    root = ElementTree.fromstring(by_name("junit").render(profile).encode("utf-8"))
    return [case for case in root.iter("testcase") if case.attrib["name"].startswith("compared ")]


def totals(profile: Profile) -> dict[str, str]:
    root = ElementTree.fromstring(by_name("junit").render(profile).encode("utf-8"))
    return {
        each.attrib["name"]: each.attrib["value"]
        for each in root.findall("testsuite/properties/property")
    }


# ---------------------------------------------------------------- verdicts and counts


@every_comparison
def test_html_judges_each_metric_as_the_json_does(state: str) -> None:
    profile, found = compared(state)
    page = by_name("html").render(profile)

    # then: every metric has one row (the first screen shows some of them once more)
    rows = re.findall(r'<td class="kind judged ([\w-]+)(?: wrong)?"', page)
    assert Counter(rows) == {word.replace(" ", "-"): n for word, n in verdicts(found).items()}
    tallies = re.findall(
        r"</span> ([\d,]+) (new|fixed|moved|unchanged|not looked for)</summary>", page
    )
    told = {status: int(number) for number, status in tallies}
    assert {"moved": 0, **told} == statuses(found)  # nobody asks for what moved if nothing did
    assert f'<section class="verdict {profile.verdict.status}"' in page


@pytest.mark.parametrize("state", READABLE)
def test_markdown_tallies_what_the_json_holds(state: str) -> None:
    profile, found = compared(state)
    text = by_name("markdown").render(profile)

    counts = statuses(found)
    tally = (
        f"**Findings**: {counts['new']} new, {counts['fixed']} fixed, "
        f"{counts['unchanged']} unchanged, "
    )
    assert f"{tally}{counts['not looked for']} not looked for in head\n" in text
    assert (
        "**Regression:** " in text
        if profile.verdict.status == "failed"
        else "**Inconclusive:** " in text
    )
    changed = ("worse", "better", "inconclusive")
    words = "|".join(changed)
    folded = re.findall(rf"^\| [^|]* \| [^|]* \| \**\W ({words})\** \|", text, re.MULTILINE)
    in_front = re.findall(
        rf"^\| [^|]* \|[^|]*\|[^|]*\| \W [^|]*, ({words}) \|$", text, re.MULTILINE
    )
    assert bool(in_front) == bool(found.runs)
    assert Counter([*folded, *in_front]) == {
        word: n for word, n in verdicts(found).items() if word in changed
    }
    for one in found.findings:
        if one.status == "fixed":
            assert f"- <s>**{one.finding.rule}** " in text
        if one.status == "not looked for":
            assert f" **{one.finding.rule}** " in text.partition("**Not looked for**")[2]


@every_comparison
def test_junit_has_one_case_a_metric_and_fails_where_the_comparison_does(state: str) -> None:
    profile, found = compared(state)
    metrics = [metric for run in found.runs for metric in run.metrics]
    told = cases(profile)

    assert len(told) == len(metrics)
    failures = sum(case.find("failure") is not None for case in told)
    assert failures == sum(metric.decides and metric.verdict == "worse" for metric in metrics)
    errors = sum(case.find("error") is not None for case in told)
    assert errors == sum(
        metric.decides and metric.verdict in ("inconclusive", "not observed") for metric in metrics
    )
    counts = {
        status: int(totals(profile)[f"findings.{status.replace(' ', '-')}"])
        for status in FindingStatus
    }
    assert counts == statuses(found)
    assert totals(profile)["exit.code"] == str(profile.exit_code)
    assert totals(profile)["verdict.status"] == profile.verdict.status


@pytest.mark.parametrize(
    ("exit_code", "ends"), [(0, "system-out"), (1, "failure"), (4, "failure"), (6, "error")]
)
def test_junit_says_the_verdict_whatever_it_is_about(exit_code: int, ends: str) -> None:
    # given: a comparison that failed for another reason than a metric or a finding (other results)
    profile = msgspec.structs.replace(profiles.comparison(), exit_code=exit_code)
    root = ElementTree.fromstring(by_name("junit").render(profile).encode("utf-8"))

    (case,) = (
        case
        for case in root.iter("testcase")
        if case.attrib["name"] == "head has no regression against base"
    )

    assert [child.tag for child in case] == [ends]
    assert (case[0].text or "").splitlines() == [profile.verdict.text, *profile.verdict.reasons]


def test_junit_fails_on_the_new_findings_that_fail_and_on_no_other() -> None:
    profile, found = compared("comparison")
    root = ElementTree.fromstring(by_name("junit").render(profile).encode("utf-8"))

    wrong = [
        (case.attrib["classname"], case.attrib["name"], failure.text)
        for case in root.iter("testcase")
        if (failure := case.find("failure")) is not None and case.attrib["name"].startswith("KGP")
    ]

    assert wrong == [
        (
            "batched.default",
            "KGP201 host-device-sync",
            "part_0.py:10: warning KGP201: Tensor.item reads 1 value a step",
        )
    ]
    assert [
        one.finding.location.line for one in found.findings if one.fails and one.finding.location
    ] == [10]


def test_junit_gives_a_metric_its_figures() -> None:
    profile, _ = compared("comparison")

    first = cases(profile)[0]

    assert (first.attrib["classname"], first.attrib["name"]) == ("batched.default", "compared step")
    assert {
        each.attrib["name"]: each.attrib["value"] for each in first.findall("properties/property")
    } == {
        "verdict": "worse",
        "decides": "true",
        "unit": "us",
        "base": "36700",
        "head": "41250.8",
        "ratio": "1.124",
        "ratio.low": "1.098",
        "ratio.high": "1.151",
        "allowed.percent": "5",
    }


@every_comparison
def test_sarif_tells_what_is_new_from_what_was_there(state: str) -> None:
    profile, found = compared(state)
    run = sarif(profile)

    counts = statuses(found)
    # the hostile one's findings are poisoned each for itself, so head's are not those compared
    if state in READABLE:
        states = Counter(result["baselineState"] for result in run["results"])
        grew = sum(one.grew for one in found.findings)
        expected = {"new": counts["new"], "updated": grew, "unchanged": counts["unchanged"] - grew}
        assert states == {name: n for name, n in expected.items() if n}
    assert run["properties"]["comparison"]["findings"] == counts
    told = Counter(metric["verdict"] for metric in run["properties"]["comparison"]["metrics"])
    assert told == verdicts(found)
    notes = [
        note["message"]["text"] for note in run["invocations"][0]["toolExecutionNotifications"]
    ]
    assert sum(note.startswith("fixed: ") for note in notes) == counts["fixed"]
    assert run["properties"]["verdict"]["status"] == profile.verdict.status
    assert run["properties"]["exitCode"] == profile.exit_code


def test_sarif_names_its_baseline_by_what_it_was() -> None:
    profile, found = compared("comparison")
    later = msgspec.structs.replace(
        profile,
        comparison=msgspec.structs.replace(
            found, base=msgspec.structs.replace(found.base, created_utc="2026-11-20T12:00:00+00:00")
        ),
    )
    run = sarif(profile)

    assert re.fullmatch(
        r"[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", run["baselineGuid"]
    )
    assert run["baselineGuid"] == sarif(profiles.comparison())["baselineGuid"]
    assert run["baselineGuid"] != sarif(later)["baselineGuid"]
    assert run["baselineGuid"] != run["automationDetails"]["guid"]


def test_sarif_gives_what_the_base_did_not_look_for_a_state_and_says_why() -> None:
    profile, found = compared("comparison")
    unknown, elsewhere = profile.findings[0], profile.findings[1]
    rows = [
        msgspec.structs.replace(
            row, status=FindingStatus.NOT_LOOKED_FOR, escaped="base", missing="MEMORY did not run"
        )
        if row.finding == unknown
        else row
        for row in found.findings
        if row.finding != elsewhere
    ]
    comparison = msgspec.structs.replace(found, findings=tuple(rows))

    results = sarif(msgspec.structs.replace(profile, comparison=comparison))["results"]

    assert all("baselineState" in result for result in results)
    reasons = Counter(result["properties"].get("notLookedForInBase") for result in results)
    assert {reason: number for reason, number in reasons.items() if reason} == {
        "MEMORY did not run": 1,
        "the base has no run of this name": 1,
    }
    for result in results:
        if "notLookedForInBase" in result["properties"]:
            assert result["baselineState"] == "new"


def test_sarif_of_one_run_has_no_baseline() -> None:
    run = sarif(profiles.watched())

    assert "baselineGuid" not in run
    assert not [result for result in run["results"] if "baselineState" in result]


@pytest.mark.parametrize("state", READABLE)
def test_annotations_stand_where_something_is_new_or_worse(state: str) -> None:
    profile, found = compared(state)

    lines = by_name("github").render(profile).splitlines()

    worse = sum(metric.verdict == "worse" for run in found.runs for metric in run.metrics)
    assert sum("title=kgprof%3A regression of " in line for line in lines) == worse
    assert sum(",title=KGP" in line for line in lines) == statuses(found)["new"]
    assert lines[0].startswith("::error title=kgprof%3A ")


@pytest.mark.parametrize("state", READABLE)
@pytest.mark.parametrize("name", ["html", "markdown", "sarif", "text"])
def test_every_format_names_both_sides_and_why_they_cannot_be_compared(
    name: str, state: str
) -> None:
    profile, found = compared(state)
    text = by_name(name).render(profile)

    assert "main/report.html" in text
    assert "pr/report.html" in text
    if name in ("html", "markdown") and not found.comparable:
        assert compare_words.comparability(found) in text
        assert "Invented 9001" in text
