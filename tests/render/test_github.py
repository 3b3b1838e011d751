"""Workflow commands, read back as GitHub's runner reads them."""

from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kgprof.gate import judge
from kgprof.model import Finding, FindingCost, Level, PassName, Profile
from kgprof.render import by_name
from kgprof.render.github import escaped, escaped_property
from tests.gate import gated
from tests.render import profiles
from tests.render.test_sarif import hostile_findings

COMMAND = re.compile(
    r"::(?P<command>error|warning|notice) (?P<properties>[^:\r\n]*)::(?P<message>[^\r\n]*)"
)


def unescaped(text: str) -> str:
    """As the runner does it: the percent sign last."""
    for code, character in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(code, character)
    return text


def commands(profile: Profile) -> list[tuple[str, dict[str, str], str]]:
    lines = by_name("github").render(profile).removesuffix("\n").split("\n")
    read = []
    for line in lines:
        matched = COMMAND.fullmatch(line)
        assert matched is not None, line
        pairs = [pair.partition("=") for pair in matched["properties"].split(",")]
        assert {name for name, _, _ in pairs} <= {"file", "line", "endLine", "title"}
        read.append(
            (
                matched["command"],
                {name: unescaped(value) for name, _, value in pairs},
                unescaped(matched["message"]),
            )
        )
    return read


def test_a_message_and_a_property_are_escaped() -> None:
    assert escaped("50%: a,b\r\nc") == "50%25: a,b%0D%0Ac"
    assert escaped_property("50%: a,b\r\nc") == "50%25%3A a%2Cb%0D%0Ac"


@given(st.text(st.characters(exclude_categories=["C", "Z"])))
def test_what_is_escaped_reads_back(text: str) -> None:
    assert unescaped(escaped_property(text)) == unescaped(escaped(text)) == text


def test_a_finding_stands_at_its_line() -> None:
    (verdict, over, found) = commands(
        judge(gated.profile(gated.finding(level=Level.ERROR)), gated.settings())
    )

    assert verdict[0] == "error"
    assert verdict[1] == {"title": "kgprof: failed"}
    assert over[2] == "fused.default: graph-breaks: 1 site, the budget is 0 sites (default)"
    assert found[0] == "error"
    assert found[1]["file"] == "src/model.py"
    assert (found[1]["line"], found[1]["endLine"]) == ("12", "12")
    assert found[1]["title"].startswith("KGP101 ")
    assert found[2] == "graph break (GB0059): print() is called"


def test_an_accepted_finding_is_a_notice_with_its_reason() -> None:
    judged = judge(
        gated.profile(gated.finding(level=Level.ERROR)), gated.settings(entries=[gated.entry()])
    )

    assert [(command, text) for command, _, text in commands(judged)] == [
        ("notice", "gate passed: 4 budgets met in 1 run, 1 finding accepted"),
        (
            "notice",
            "accepted by ana, until 2027-01-31: it is a demo: graph break (GB0059): print() is "
            "called",
        ),
    ]


def test_a_budget_that_only_warns_is_a_warning() -> None:
    eager = gated.finding("KGP108")
    found = gated.with_calls(
        gated.profile(eager), calls=9, with_a_graph=2, graph_runs=2, eager={eager.fingerprint: 7}
    )

    annotations = [(command, text) for command, _, text in commands(judge(found, gated.settings()))]

    assert ("warning", "fused.default: eager-calls: 7 calls") in annotations


def test_ten_of_a_kind_the_worst_first_and_the_last_says_how_many_more() -> None:
    found = [
        gated.finding(level=level, line=line) for level in reversed(Level) for line in range(1, 31)
    ]

    read = commands(msgspec.structs.replace(gated.profile(), findings=tuple(found)))

    assert [command for command, _, _ in read] == ["error"] * 10 + ["warning"] * 10 + [
        "notice"
    ] * 10
    # the verdict (ok, a notice) is one of the notices
    assert [read[last][2] for last in (9, 19, 29)] == [
        "21 more of this kind in report.json",
        "21 more of this kind in report.json",
        "22 more of this kind in report.json",
    ]


@pytest.mark.parametrize("state", profiles.STATES)
def test_every_state_says_its_verdict(state: str) -> None:
    profile = profiles.STATES[state]()

    titles = [properties["title"] for _, properties, _ in commands(profile)]

    assert sum(title.startswith("kgprof: ") for title in titles) >= 1
    if state != "hostile":
        assert f"kgprof: {profile.verdict.status}" in titles


@given(st.lists(hostile_findings, max_size=30))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_the_names_are_each_line_is_one_command_and_the_counts_add_up(
    found: list[Finding],
) -> None:
    read = commands(msgspec.structs.replace(gated.profile(), findings=tuple(found)))

    for level, kind, verdicts in (
        (Level.ERROR, "error", 0),
        (Level.WARNING, "warning", 0),
        (Level.NOTE, "notice", 1),
    ):
        of_kind = [message for command, _, message in read if command == kind]
        more = re.match(r"([\d,]+) more of this kind", of_kind[-1]) if len(of_kind) == 10 else None
        said = len(of_kind) + (int(more[1]) - 1 if more else 0)
        assert len(of_kind) <= 10
        assert said == sum(finding.level is level for finding in found) + verdicts


def test_within_a_kind_the_costlier_finding_comes_first() -> None:
    def costing(message: str, value: float, unit: str) -> Finding:
        cost = FindingCost(
            value=value,
            unit=unit,
            what="the host waited",
            measured_in=(PassName.MEMORY,),
            samples=9,
        )
        return msgspec.structs.replace(
            gated.finding(level=Level.WARNING), message=message, cost=cost
        )

    unknown = msgspec.structs.replace(gated.finding(level=Level.WARNING), message="unknown")
    found = (
        unknown,
        costing("once", 9.0, "s"),
        costing("little", 2.0, "us/step"),
        costing("much", 300.0, "us/step"),
    )

    read = commands(msgspec.structs.replace(gated.profile(), findings=found))

    said = [message for command, _, message in read if command == "warning"]
    assert said == [
        "much; costs 300 µs per step (the host waited; MEMORY, n = 9)",
        "little; costs 2.00 µs per step (the host waited; MEMORY, n = 9)",
        "once; costs 9.00 s, once (the host waited; MEMORY, n = 9)",
        "unknown",
    ]
