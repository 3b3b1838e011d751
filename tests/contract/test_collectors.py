"""Every rule is complete, keeps its promise, and has a case that it finds and one that it does
not."""

from __future__ import annotations

import importlib
import pkgutil
import re

import pytest

from kgprof import collectors
from kgprof.collectors import COLLECTORS, RULES, event, fingerprint
from kgprof.collectors.time import break_even
from kgprof.collectors.trust import nothing_measured
from kgprof.model import Finding, FindingCost, Level, PassName, Recording, Rule, RunKey
from kgprof.reading.evidence import Evidence
from tests.analysis import recordings
from tests.analysis.recordings import EAGER, FUSED, recording, run
from tests.contract.moved import moved, without_git
from tests.contract.rule_cases import CASES, CLEAN

every_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)


def test_a_rule_says_what_why_how_it_looks_and_what_to_do() -> None:
    assert [rule.id for rule in RULES if not re.fullmatch(r"KGP\d{3}", rule.id)] == []
    assert [rule.id for rule in RULES if not re.fullmatch(r"[a-z]+(-[a-z]+)*", rule.name)] == []
    texts = [
        (rule.id, text)
        for rule in RULES
        for text in (rule.summary, rule.why, rule.example, rule.remedy)
    ]
    assert [(id_, text) for id_, text in texts if len(text) <= 40 or not text.endswith(".")] == []


def test_rule_ids_are_given_once() -> None:
    assert len({rule.id for rule in RULES}) == len(RULES) == len({rule.name for rule in RULES})


def test_every_module_with_rules_is_listed() -> None:
    modules = [
        importlib.import_module(m.name)
        for m in pkgutil.walk_packages(collectors.__path__, "kgprof.collectors.")
    ]

    assert {m for m in modules if hasattr(m, "RULES")} == set(COLLECTORS)


def test_every_rule_has_its_case() -> None:
    assert set(CASES) == {rule.id for rule in RULES}


@every_rule
def test_the_dirty_case_is_found_and_the_clean_one_is_not(rule: Rule) -> None:
    assert rule.id in {
        finding.rule for finding in collectors.findings(Evidence(CASES[rule.id].written))
    }
    assert rule.id not in {finding.rule for finding in collectors.findings(Evidence(CLEAN))}


def test_a_collector_speaks_for_its_own_rules_only() -> None:
    written = {case: Evidence(CASES[case].written) for case in CASES}
    said = [
        (collector, case, finding.rule)
        for case, evidence in written.items()
        for collector in COLLECTORS
        for finding in collector.diagnose(collector.collect(evidence))
    ]

    assert {rule for _, _, rule in said} == set(CASES)
    owned = [(collector, rule.id) for collector in COLLECTORS for rule in collector.RULES]
    assert [each for each in said if (each[0], each[2]) not in owned] == []


def test_a_fingerprint_is_twelve_letters_and_no_two_of_a_recording_are_the_same() -> None:
    for rule, case in CASES.items():
        found = [finding.fingerprint for finding in collectors.findings(Evidence(case.written))]

        assert all(re.fullmatch(r"[0-9a-f]{12}", each) for each in found), (rule, found)
        assert len(set(found)) == len(found), (rule, found)


def fingerprints(recording: Recording) -> list[tuple[str, str]]:
    return sorted(
        (finding.rule, finding.fingerprint) for finding in collectors.findings(Evidence(recording))
    )


def test_a_fingerprint_is_the_same_in_another_checkout_and_further_down_the_file() -> None:
    elsewhere = {"/src/shop": "/home/runner/work/shop/shop", "/lib": "/opt/conda/lib/python3.12"}
    for rule, case in CASES.items():
        there = moved(case.written, elsewhere, lines=7)

        assert "/src/shop" not in str(there), rule
        assert fingerprints(there) == fingerprints(case.written), rule


def test_a_fingerprint_is_the_same_under_two_prefixes_of_an_installed_workload() -> None:
    folders = [
        f"{prefix}/lib/python3.12/site-packages/shop"
        for prefix in ("/home/a/.venv", "/opt/conda/envs/b")
    ]
    for rule, case in CASES.items():
        here, there = (
            without_git(moved(case.written, {"/src/shop": folder}), own=folder)
            for folder in folders
        )

        assert rule in dict(fingerprints(here)), rule
        assert fingerprints(there) == fingerprints(here), rule


def test_a_better_sentence_changes_no_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    """No part of an identity is a sentence of kgprof's; torch's own words are what was recorded."""
    identities: list[tuple[str, tuple[str, ...]]] = []

    def recorded(rule: str, run: RunKey | None, *identity: str) -> str:
        identities.append((rule, identity))
        return fingerprint.fingerprint(rule, run, *identity)

    for module in (event, nothing_measured, break_even):
        monkeypatch.setattr(module, "fingerprint", recorded)
    prose = []
    for case in CASES.values():
        identities.clear()
        messages = [each.message for each in collectors.findings(Evidence(case.written))]
        written = str(case.written)
        parts = {
            (rule, part)
            for rule, identity in identities
            for whole in identity
            for part in whole.split("\0")
            if len(part.split()) > 2 and part not in written
        }
        prose += [each for each in parts if any(each[1] in message for message in messages)]

    assert identities
    assert prose == []


def test_findings_come_errors_first() -> None:
    levels = [finding.level for finding in collectors.findings(Evidence(mixed()))]

    assert levels == sorted(levels, key=[Level.ERROR, Level.WARNING, Level.NOTE].index)
    assert len(set(levels)) == 2


def test_of_one_level_what_each_step_pays_comes_first_then_what_is_paid_once_then_what_is_not_known() -> (  # noqa: E501
    None
):
    def costing(rule: str, value: float, unit: str, level: Level = Level.WARNING) -> Finding:
        cost = FindingCost(
            value=value, unit=unit, what="", measured_in=(PassName.MEMORY,), samples=1
        )
        return Finding(rule=rule, level=level, message="", cost=cost)

    found = [
        Finding(rule="KGP101", level=Level.WARNING, message=""),
        costing("KGP103", 90.0, "s"),
        costing("KGP201", 3.0, "us/step"),
        costing("KGP602", 700.0, "us/step"),
        costing("KGP305", 9000.0, "us/step", Level.NOTE),
        Finding(rule="KGP501", level=Level.ERROR, message=""),
    ]

    ordered = [finding.rule for finding in sorted(found, key=collectors.weight)]
    assert ordered == ["KGP501", "KGP602", "KGP201", "KGP103", "KGP101", "KGP305"]


def mixed() -> Recording:
    return recording(run(EAGER, unfinished=1), run(FUSED, compiled=0))


def messages(found: tuple[Finding, ...]) -> list[tuple[Level, str]]:
    return [(finding.level, finding.message) for finding in found]


def test_the_recordings_of_this_suite_are_told_apart() -> None:
    assert messages(collectors.findings(Evidence(CLEAN))) == []
    assert recordings.GONE.reason not in str(collectors.findings(Evidence(mixed())))
