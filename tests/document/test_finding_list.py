"""Findings in the order in which they are read, each at its place."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from kgprof.document.finding_list import FindingLine, Place, finding_list
from kgprof.model import (
    Finding,
    FindingCost,
    Level,
    Location,
    PackageLine,
    PassName,
    Refusal,
    TorchCause,
    unknown_rule,
)
from kgprof.render.html import LEVELS, Html
from tests.render import profiles

LIMITS = LEVELS[0]


def at(file: str, line: int, *, rule: str = "KGP201", fingerprint: str = "") -> Finding:
    return Finding(
        rule=rule,
        level=Level.WARNING,
        message="read back",
        run=profiles.EAGER,
        location=Location(file=file, line=line),
        fingerprint=fingerprint or f"{file}{line}",
    )


def of(*findings: Finding) -> list[tuple[str, list[str]]]:
    made = finding_list(msgspec.structs.replace(profiles.clean(), findings=findings), LIMITS)
    return [
        (group.rule.id, [line.place.where for line in group.lines if line.place])
        for group in made.groups
    ]


def test_a_line_says_everything_that_is_known_of_it() -> None:
    made = finding_list(profiles.gate(), LIMITS)

    line = made.groups[0].lines[0]
    assert line.finding.message == "graph break in derive: Data-dependent branching (GB0170)"
    assert line == FindingLine(
        anchor="KGP101-broken41",
        finding=line.finding,
        fix_label="to try",
        runs=("batched.default", "torch_cond.default"),
        times="4 times",
        cost="",
        weight=-1,
        fails="Fails the gate in batched.default.",
        place=Place(where="step.py:41 derive", source="if x.sum() > 0:"),
        related=[Place(where="evaluator.py:9 evaluate", source="step(x)")],
        words=[
            "Detected data-dependent branching.",
            "Hint: Use `torch.cond` to express dynamic control flow.",
        ],
    )


def test_what_happened_in_a_library_has_its_line_there_and_the_way_to_it() -> None:
    line = PackageLine(
        package="shelf",
        version="1.4.2",
        file="layers.py",
        line=12,
        function="clipped",
        text="now()",
    )
    above = PackageLine(
        package="shelf", version="1.4.2", file="fitting.py", line=30, function="fit"
    )
    cause = TorchCause(kind="Skipped", context="module: time, qualname: now")
    found = msgspec.structs.replace(
        at("a.py", 3), library=line, refusal=Refusal(cause=cause, chain=(above,))
    )

    made = finding_list(msgspec.structs.replace(profiles.clean(), findings=(found,)), LIMITS)
    (shown,) = made.groups[0].lines

    assert shown.words == [
        "In shelf 1.4.2 layers.py:12 (clipped): now()",
        "Through shelf 1.4.2 fitting.py:30 (fit)",
        "Developer debug context: module: time, qualname: now",
    ]


def costing(value: float, unit: str, **given: Any) -> Finding:
    cost = FindingCost(
        value=value, unit=unit, what="it waited", measured_in=(PassName.MEMORY,), samples=17
    )
    return msgspec.structs.replace(at(**given), cost=cost)


def test_within_a_rule_what_each_step_pays_comes_first_and_what_is_not_known_last() -> None:
    profile = msgspec.structs.replace(
        profiles.clean(),
        findings=(
            at("a.py", 1),
            costing(9.0, "s", file="b.py", line=2),
            costing(3.0, "us/step", file="c.py", line=3),
            costing(310.0, "us/step", file="d.py", line=4),
        ),
    )

    (group,) = finding_list(profile, LIMITS).groups
    assert [(line.place.where, line.cost, line.weight) for line in group.lines if line.place] == [
        ("d.py:4", "310 µs per step (it waited; MEMORY, n = 17)", 2),
        ("c.py:3", "3.00 µs per step (it waited; MEMORY, n = 17)", 1),
        ("b.py:2", "9.00 s, once (it waited; MEMORY, n = 17)", 0),
        ("a.py:1", "", -1),
    ]
    assert re.findall(
        r'<article class="finding \w+" data-cost="(-?\d+)">', Html().render(profile)
    ) == ["2"]


def test_what_fails_the_gate_comes_first_and_what_is_accepted_last() -> None:
    # given: the accepted finding is met first
    profile = profiles.gate()
    assert profile.gate is not None
    turned = msgspec.structs.replace(
        profile,
        findings=profile.findings[::-1],
        gate=msgspec.structs.replace(profile.gate, failing=(3,)),
    )

    lines = [
        line
        for group in finding_list(turned, LIMITS).groups
        for line in group.lines
        if "break" in line.finding.message
    ]

    assert [(bool(line.fails), bool(line.finding.accepted)) for line in lines] == [
        (True, False),
        (False, True),
    ]


def test_a_finding_that_fails_the_gate_in_each_of_its_runs_says_only_that_it_does() -> None:
    profile = profiles.gate()
    assert profile.gate is not None
    same = tuple(
        i for i, finding in enumerate(profile.findings) if finding.fingerprint == "broken41"
    )
    in_both = msgspec.structs.replace(
        profile, gate=msgspec.structs.replace(profile.gate, failing=same)
    )

    assert len(same) == 2
    assert finding_list(in_both, LIMITS).groups[0].lines[0].fails == "Fails the gate."


def test_rules_keep_their_order_and_places_are_sorted_within() -> None:
    found = of(at("b.py", 2), at("a.py", 9, rule="KGP102"), at("a.py", 7), at("b.py", 1))

    assert found == [("KGP201", ["a.py:7", "b.py:1", "b.py:2"]), ("KGP102", ["a.py:9"])]


def test_beyond_the_first_ones_of_a_rule_they_are_folded() -> None:
    profile = msgspec.structs.replace(
        profiles.clean(),
        findings=tuple(at("a.py", i, fingerprint=f"f{i}") for i in range(11)),
    )

    made = finding_list(profile, LIMITS)
    _, folded = Html().render(profile).split("<summary>3 more of KGP201</summary>")

    assert [len(group.lines) for group in made.groups] == [11]
    assert made.anchors["f10"] == "KGP201-f10"
    assert re.findall(r'id="(KGP201-f\d+)"', folded) == [f"KGP201-f{i}" for i in (8, 9, 10)]


def test_findings_of_one_fingerprint_have_anchors_of_their_own() -> None:
    profile = msgspec.structs.replace(
        profiles.clean(),
        findings=(at("a.py", 1, fingerprint="same"), at("a.py", 2, fingerprint="same")),
    )

    (group,) = finding_list(profile, LIMITS).groups

    assert [line.anchor for line in group.lines] == ["KGP201-same", "KGP201-same-2"]


def test_a_finding_without_run_place_or_known_rule_is_still_one() -> None:
    bare = Finding(rule="KGP999", level=Level.NOTE, message="odd", count=0)

    made = finding_list(msgspec.structs.replace(profiles.clean(), findings=(bare,)), LIMITS)

    assert [group.rule for group in made.groups] == [unknown_rule("KGP999", Level.NOTE)]
    assert made.groups[0].lines == [
        FindingLine(
            anchor="KGP999-",
            finding=bare,
            fix_label="to try",
            runs=(),
            times="",
            cost="",
            weight=-1,
            fails="",
            place=None,
            related=[],
            words=[],
        ),
    ]
