from __future__ import annotations

import random

import msgspec
import pytest

from kgprof.compare.findings import compared_findings
from kgprof.model import Coverage, CoverageStatus, Finding, Level, Location, Profile, RunKey
from tests.analysis.compared import KEY, finding, profile


def holding(*found: Finding, root: str = "/src") -> Profile:
    given = profile(findings=found)
    return msgspec.structs.replace(
        given, environment=msgspec.structs.replace(given.environment, source_root=root)
    )


def statuses(base: Profile, head: Profile, fail_on: str = "warning") -> list[tuple[str, bool]]:
    return [(one.status, one.fails) for one in compared_findings(base, head, fail_on)]


def test_a_finding_that_moved_with_its_line_is_not_new() -> None:
    assert statuses(holding(finding(line=41)), holding(finding(line=99))) == [("unchanged", False)]


def test_a_finding_in_another_checkout_is_not_new() -> None:
    """Fingerprints of places that torch named by their whole path differ there."""
    base = holding(finding(file="/base/pkg/step.py", fingerprint="one"), root="/base")
    head = holding(finding(file="/head/pkg/step.py", fingerprint="other", line=50), root="/head")

    assert statuses(base, head) == [("unchanged", False)]


def test_a_finding_on_an_edited_line_is_not_new() -> None:
    base = holding(finding(text="n = x.item()", fingerprint="one"))
    head = holding(
        finding(
            text="n = int(x.item())",
            fingerprint="other",
            message="Tensor.item reads 2 values a step",
        )
    )

    assert statuses(base, head) == [("unchanged", False)]


def test_a_second_one_in_the_same_function_is_new() -> None:
    base = holding(finding(fingerprint="one"))
    head = holding(
        finding(fingerprint="one"), finding(fingerprint="two", line=43, text="m = y.item()")
    )

    assert statuses(base, head) == [("new", True), ("unchanged", False)]


def test_the_same_rule_in_another_function_is_new_and_the_other_one_fixed() -> None:
    moved = msgspec.structs.replace(
        finding(fingerprint="other"),
        location=Location(file="/src/step.py", line=41, function="refill", text="x"),
    )

    assert statuses(holding(finding()), holding(moved)) == [("new", True), ("fixed", False)]


def elsewhere(given: Finding, file: str, function: str, message: str = "") -> Finding:
    place = Location(file=file, line=7, function=function, text=given.location.text)  # type: ignore[union-attr]
    message = message or given.message
    return msgspec.structs.replace(given, location=place, fingerprint="other", message=message)


def test_a_line_that_moved_to_another_function_or_file_is_no_new_finding() -> None:
    base = holding(finding(message="step breaks the graph in 2 calls"), root="/src")
    moved = elsewhere(
        finding(), "/src/parts/loss.py", "Loss.total", "total breaks the graph in 3 calls"
    )

    (found,) = compared_findings(base, holding(moved), "warning")

    assert (found.status, found.fails) == ("moved", False)
    assert found.moved_from == Location(
        file="step.py", line=41, function="step", text="    n = x.item()"
    )


def test_a_line_that_moved_and_stands_twice_is_one_moved_and_one_new() -> None:
    moved = elsewhere(finding(), "/src/parts/loss.py", "total")
    again = elsewhere(finding(), "/src/parts/metrics.py", "total")

    assert statuses(holding(finding()), holding(moved, again)) == [("new", True), ("moved", False)]


def test_another_cause_on_a_line_of_the_same_text_is_new() -> None:
    other = elsewhere(finding(), "/src/step.py", "refill", "Tensor.tolist reads 1 value a step")

    assert statuses(holding(finding()), holding(other)) == [("new", True), ("fixed", False)]


def test_a_finding_without_the_text_of_its_line_never_moved() -> None:
    base = holding(finding(text=""))
    head = holding(elsewhere(finding(text=""), "/src/other.py", "step"))

    assert statuses(base, head) == [("new", True), ("fixed", False)]


def test_a_note_that_became_a_warning_is_a_new_warning() -> None:
    base, head = holding(finding(level=Level.NOTE)), holding(finding(level=Level.WARNING))

    assert statuses(base, head) == [("new", True)]
    assert statuses(head, base) == [("new", False), ("fixed", False)]


def test_a_count_that_grew_is_told_and_fails_nothing() -> None:
    (found,) = compared_findings(holding(finding(count=2)), holding(finding(count=5)), "warning")

    assert (found.status, found.base_count, found.head_count, found.grew, found.fails) == (
        "unchanged",
        2,
        5,
        True,
        False,
    )


@pytest.mark.parametrize(
    ("level", "fail_on", "fails"),
    [
        (Level.ERROR, "error", True),
        (Level.WARNING, "error", False),
        (Level.WARNING, "warning", True),
        (Level.NOTE, "warning", False),
        (Level.ERROR, "never", False),
    ],
)
def test_which_new_findings_fail(level: Level, fail_on: str, fails: bool) -> None:
    assert statuses(holding(), holding(finding(level=level)), fail_on) == [("new", fails)]


def test_what_the_project_accepts_fails_nothing() -> None:
    accepted = msgspec.structs.replace(finding(), accepted="ada, until 2027-01-31: see #12")

    assert statuses(holding(), holding(accepted)) == [("new", False)]


@pytest.mark.parametrize("rule", ["KGP503", "KGP601", "KGP602", "KGP603"])
def test_what_is_judged_from_times_fails_nothing_by_being_new(rule: str) -> None:
    assert statuses(holding(), holding(finding(rule))) == [("new", False)]


def test_findings_of_a_run_that_only_one_side_made_are_not_compared() -> None:
    other = msgspec.structs.replace(KEY, mode="eager")

    assert statuses(holding(), holding(finding(run=other))) == []


def test_the_order_of_findings_does_not_matter() -> None:
    found = [
        finding(rule, line=line, fingerprint=f"{rule}{line}")
        for rule in ("KGP101", "KGP201")
        for line in (1, 2)
    ]
    twins = [finding("KGP402", line=7, message=f"pair {i}", fingerprint="twins") for i in (1, 2, 3)]
    base, head = [*found[:3], *twins[:2]], [*found[1:], *twins]
    expected = compared_findings(holding(*base), holding(*head), "warning")
    chance = random.Random(3)
    for _ in range(20):
        chance.shuffle(base)
        chance.shuffle(head)

        assert compared_findings(holding(*base), holding(*head), "warning") == expected


# ---------------------------------------------------------------- what one side did not look for

NO_MEMORY = "the MEMORY pass was not requested"


def without(
    given: Profile, *rules: str, run: RunKey = KEY, status: str = "could not be seen"
) -> Profile:
    """The same, but these rules could not be seen, or not everywhere."""
    kept = tuple(
        msgspec.structs.replace(
            row, rules=tuple(rule for rule in row.rules if row.run != run or rule not in rules)
        )
        for row in given.coverage
    )
    row = Coverage(run=run, rules=rules, status=CoverageStatus(status), missing=NO_MEMORY)
    return msgspec.structs.replace(given, coverage=(*kept, row))


def test_what_head_did_not_look_for_is_not_fixed() -> None:
    (found,) = compared_findings(holding(finding()), without(holding(), "KGP201"), "warning")

    assert (found.status, found.escaped, found.missing) == ("not looked for", "head", NO_MEMORY)
    assert (found.base_count, found.head_count, found.fails) == (1, 0, False)


def test_what_base_did_not_look_for_is_not_new() -> None:
    (found,) = compared_findings(without(holding(), "KGP201"), holding(finding()), "warning")

    assert (found.status, found.escaped, found.fails) == ("not looked for", "base", False)


def test_a_rule_of_which_only_a_part_was_seen_leaves_the_rest_open() -> None:
    """COMPILE was cut off after the first of two graph breaks."""
    two = (
        finding("KGP101", fingerprint="one"),
        finding("KGP101", fingerprint="two", line=50, text="other"),
    )

    cut = without(holding(two[0]), "KGP101", status="seen")

    assert statuses(holding(*two), cut) == [("unchanged", False), ("not looked for", False)]


def test_a_finding_of_the_whole_report_was_looked_for_where_one_run_was() -> None:
    whole = msgspec.structs.replace(finding("KGP504"), run=None, location=None)
    other = RunKey(strategy="other", mode="default")

    assert statuses(holding(whole), without(holding(), "KGP504", run=other)) == [("fixed", False)]
    assert statuses(holding(whole), without(holding(), "KGP504")) == [("not looked for", False)]


def test_another_rule_in_the_same_run_is_fixed_all_the_same() -> None:
    both = (finding(), finding("KGP101", fingerprint="break"))

    assert statuses(holding(*both), without(holding(), "KGP201")) == [
        ("fixed", False),
        ("not looked for", False),
    ]
