"""JUnit XML that every parser reads: one case a budget or rule and run, unique names, failures as
the gate judged."""

from __future__ import annotations

from xml.etree import ElementTree

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kgprof.compare import compare
from kgprof.gate import judge
from kgprof.model import Finding, FindingCost, Level, PassName, Profile
from kgprof.render import by_name
from tests.analysis import compared
from tests.analysis.recordings import died, run
from tests.gate import gated
from tests.render import profiles
from tests.render.test_sarif import hostile_findings


def parsed(profile: Profile) -> ElementTree.Element:
    root = ElementTree.fromstring(by_name("junit").render(profile).encode("utf-8"))
    assert root.tag == "testsuites"
    cases = root.findall("testsuite/testcase")
    for element in (root, *root.findall("testsuite")):
        assert int(element.attrib["tests"]) == len(cases)
        assert int(element.attrib["failures"]) == len(root.findall(".//failure"))
        assert int(element.attrib["errors"]) == len(root.findall(".//error"))
    names = [(case.attrib["classname"], case.attrib["name"]) for case in cases]
    assert len(set(names)) == len(names)
    return root


def case(root: ElementTree.Element, run_name: str, name: str) -> ElementTree.Element:
    return next(
        c for c in root.iter("testcase") if (c.get("classname"), c.get("name")) == (run_name, name)
    )


def properties(element: ElementTree.Element) -> dict[str, str]:
    return {p.attrib["name"]: p.attrib["value"] for p in element.findall("properties/property")}


@pytest.mark.parametrize("state", profiles.STATES)
def test_every_state_parses_with_the_jsons_counts_and_verdict(state: str) -> None:
    profile = profiles.STATES[state]()

    (suite,) = parsed(profile).findall("testsuite")

    totals = properties(suite)
    assert totals["findings"] == str(len(profile.findings))
    assert totals["findings.error"] == str(sum(f.level is Level.ERROR for f in profile.findings))
    assert totals["exit.code"] == str(profile.exit_code)
    assert totals["verdict.status"] == profile.verdict.status
    shown = [
        int(properties(c)["findings"])
        for c in suite.findall("testcase")
        if "findings" in properties(c)
    ]
    assert sum(shown) == len(profile.findings)


def test_a_budget_is_a_case_with_its_figures() -> None:
    judged = judge(
        gated.profile(gated.finding(), gated.finding(line=20)), gated.settings(("graph-breaks", 1))
    )

    root = parsed(judged)

    exceeded = case(root, "fused.default", "budget graph-breaks")
    held = case(root, "fused.default", "budget recompiles")
    assert properties(exceeded) == {
        "value": "2",
        "budget": "1",
        "unit": "sites",
        "accepted": "0",
        "origin": "--max",
    }
    assert [failure.get("message") for failure in exceeded.findall("failure")] == [
        "2 sites over the budget of 1"
    ]
    assert [child.tag for child in held] == ["properties"]
    failure = case(
        root, "fused.default", next(n for n in names_of(root) if n.startswith("KGP101"))
    ).find("failure")
    assert failure is not None
    assert (failure.text or "").splitlines()[0] == (
        "src/model.py:12: warning KGP101: graph break (GB0059): print() is called"
    )


def test_a_finding_says_what_it_costs() -> None:
    cost = FindingCost(
        value=9.5, unit="s", what="compiling", measured_in=(PassName.COMPILE,), samples=1
    )
    finding = msgspec.structs.replace(gated.finding(level=Level.ERROR), cost=cost)

    root = parsed(gated.profile(finding))

    (failure,) = root.findall(".//failure")
    assert failure.text == (
        f"src/model.py:12: error KGP101: {finding.message}; costs 9.50 s, once (compiling; "
        "COMPILE, n = 1)"
    )


def names_of(root: ElementTree.Element) -> list[str]:
    return [element.attrib["name"] for element in root.iter("testcase")]


def test_what_was_not_observed_is_an_error_and_no_pass() -> None:
    root = parsed(judge(gated.profile(), gated.settings(("cudagraph-skips", 0))))

    errors = [
        error.get("message")
        for error in case(root, "fused.default", "budget cudagraph-skips").findall("error")
    ]
    assert errors == ["not observed: CUDA graphs are not observable on a CPU run"]


def test_a_run_that_died_is_an_error_in_every_case_about_it() -> None:
    root = parsed(
        judge(gated.profile(runs=(run(gated.FUSED), died(gated.BATCHED))), gated.settings())
    )

    assert case(root, "batched.default", "the run ended well").find("error") is not None
    assert case(root, "batched.default", "budget graph-breaks").find("error") is not None
    assert case(root, "fused.default", "the run ended well").find("error") is None


def test_nothing_fails_where_the_gate_was_told_to_never_fail() -> None:
    root = parsed(
        judge(gated.profile(gated.finding(level=Level.ERROR)), gated.settings(fail_on="never"))
    )

    assert root.findall(".//failure") == []
    said = case(root, "fused.default", "budget graph-breaks").findtext("system-out")
    assert said == "1 site over the budget of 0"


@pytest.mark.parametrize(("expires", "failures"), [("2027-01-31", 0), ("2026-11-20", 3)])
def test_an_accepted_finding_fails_nothing_until_it_expires(expires: str, failures: int) -> None:
    judged = judge(
        gated.profile(gated.finding()), gated.settings(entries=[gated.entry(expires=expires)])
    )

    # the entry, the budget and the rule
    assert len(parsed(judged).findall(".//failure")) == failures


@given(st.lists(hostile_findings, max_size=8))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_the_names_are_it_parses_and_agrees_with_the_gate(found: list[Finding]) -> None:
    judged = judge(
        msgspec.structs.replace(gated.profile(), findings=tuple(found)), gated.settings()
    )

    root = parsed(judged)

    assert judged.gate is not None
    exceeded = sum(budget.status == "exceeded" for budget in judged.gate.budgets)
    failed_rules = {(found[i].run, found[i].rule) for i in judged.gate.failing}
    slugs = {(run.slug if run else "all runs", rule) for run, rule in failed_rules}
    assert len(root.findall(".//failure")) == exceeded + len(slugs)


def test_a_compared_figure_is_given_with_every_digit_and_no_exponent() -> None:
    step_us = 1234567.25
    base = compared.profile()
    head = compared.slower(base, step_us)

    cases = {
        case.attrib["name"]: case
        for case in parsed(compare(base, head)).findall("testsuite/testcase")
    }

    found = {
        p.attrib["name"]: p.attrib["value"]
        for p in cases["compared step"].findall("properties/property")
    }
    assert "e" not in found["head"]
    assert float(found["head"]) == pytest.approx(step_us, rel=1e-5)
    assert len(found["head"]) > len("1234567")
