"""The comparison on the page: what stands first, what is drawn, and what leads to what."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from kgprof.document import compare_words
from kgprof.document.breakdown import Bars
from kgprof.document.compare_part import compare_part
from kgprof.document.limits import Limits
from kgprof.document.table import Table, bounded
from kgprof.model import ComparedMetric, MetricVerdict, Profile, RunKey, Skipped
from kgprof.render.html import LEVELS, Html
from tests.render import profiles
from tests.render.tables import texts

RUN = RunKey(strategy="fused", mode="default")


def part(profile: Profile | None = None, limits: Limits = LEVELS[0]) -> SimpleNamespace:
    shown = profile or profiles.comparison()
    assert shown.comparison is not None
    found = compare_part(shown, shown.comparison, {"read000": "KGP201-read000"}, limits)
    read: SimpleNamespace = by_name(bounded(found, limits))
    return read


def by_name(shown: Any) -> Any:
    """As the template reads it."""
    if isinstance(shown, dict):
        return SimpleNamespace(**{name: by_name(part) for name, part in shown.items()})
    return tuple(map(by_name, shown)) if isinstance(shown, tuple | list) else shown


def metric(**given: object) -> ComparedMetric:
    plain = {
        "name": "step",
        "run": RUN,
        "unit": "us",
        "base": 1000.0,
        "head": 1124.0,
        "ratio": 1.124,
    }
    return msgspec.convert(
        {"verdict": "worse", "run": msgspec.to_builtins(RUN), **(plain | given)}, ComparedMetric
    )


def test_without_a_comparison_there_is_no_such_part() -> None:
    assert 'id="compare"' not in Html().render(profiles.clean())


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (metric(), ("1.000 ms", "1.124 ms", "+12.4 %")),
        (metric(base=1000.0, head=1000.0, ratio=1.0), ("1.000 ms", "1.000 ms", "0")),
        (
            metric(
                unit="sites", base=0.0, head=3.0, ratio={"kind": "skipped", "reason": "base is 0"}
            ),
            ("0 sites", "3 sites", "+3"),
        ),
        (
            metric(unit="bytes", base=2.0**30, head=2.0**29, ratio=0.5),
            ("1.00 GiB", "512 MiB", "\u221250.0 %"),
        ),
        (
            metric(unit="syncs/step", base=0.25, head=0.5, ratio=2.0),
            ("0.250 syncs/step", "0.500 syncs/step", "+0.250 (+100.0 %)"),
        ),
        (
            metric(name="syncs per step", unit="syncs/step", base=1.0, head=2.0, ratio=2),
            ("1", "2", "+1 (+100.0 %)"),
        ),
        (
            metric(name="evaluation", unit="s", base=1.0, head=2.0, ratio=2),
            ("1.00 s", "2.00 s", "+100.0 %"),
        ),
        (
            metric(name="first call", unit="s", base=1.0, head=15.8, ratio=15.8),
            ("1.00 s", "15.8 s", "+1,480 %"),
        ),
        (metric(head={"kind": "skipped", "reason": "no trace"}), ("1.000 ms", "\u2013", "\u2013")),
    ],
)
def test_both_sides_and_the_change_carry_their_unit(
    given: ComparedMetric, shown: tuple[str, str, str]
) -> None:
    assert (
        compare_words.value(given, given.base),
        compare_words.value(given, given.head),
        compare_words.change(given),
    ) == shown


def test_an_interval_says_what_it_stands_on() -> None:
    timed = metric(low=1.098, high=1.151, base_rounds=5, head_rounds=1)

    assert compare_words.interval(timed) == "95 % interval +9.8 to +15.1 %, 5 + 1 round"
    assert compare_words.interval(metric()) == ""


def test_what_is_allowed_is_said_of_what_decides_only() -> None:
    assert compare_words.allowed(metric(budget_percent=5.0)) == ""
    assert compare_words.allowed(metric(budget_percent=5.0, decides=True)) == "at most +5.0 %"
    assert compare_words.allowed(metric(tolerance_percent=1.0, decides=True)) == "at most +1.0 %"
    assert compare_words.allowed(metric(decides=True)) == "no more"


def test_the_worst_comes_first_and_what_decides_before_what_does_not() -> None:
    found = profiles.comparison().comparison
    assert found is not None

    ordered = [(one.verdict, one.decides) for one in compare_words.metrics_of(found)]

    assert ordered == [
        *[("worse", True)] * 3,
        ("inconclusive", True),
        *[("not observed", False)] * 2,
        *[("better", False)] * 2,
        *[("same", False)] * 2,
    ]


def test_the_causes_that_the_first_screen_does_not_show_say_why() -> None:
    (other,) = part().causes

    assert other.detail == "effect on step time unknown: no time is known to be worse"
    assert other.anchor == ""
    assert part().accounts == (
        "batched.default: +4.50 ms per step; +4.30 ms explained, +0.20 ms not explained",
    )


def test_what_is_true_of_every_cause_is_said_once() -> None:
    found = profiles.comparison()
    assert found.comparison is not None
    why = Skipped(reason="no trace of base")
    causes = tuple(
        msgspec.structs.replace(cause, explains_us=why) for cause in found.comparison.causes
    )
    runs = tuple(
        msgspec.structs.replace(run, explained_us=0.0) for run in found.comparison.runs[:1]
    )
    comparison = msgspec.structs.replace(found.comparison, causes=causes, runs=runs)

    shown = part(msgspec.structs.replace(found, comparison=comparison))

    assert [cause.detail for cause in shown.causes] == ["batched.default", ""]
    assert shown.accounts == (
        "Effect on step time unknown: no trace of base",
        "batched.default: +4.50 ms per step, unexplained",
    )


def test_a_remainder_against_the_change_keeps_its_sign() -> None:
    found = profiles.comparison().comparison
    assert found is not None
    run = msgspec.structs.replace(found.runs[0], delta_us=4000.0, remainder_us=-300.0)

    assert compare_words.account(run).endswith("+4.30 ms explained, \u22120.30 ms not explained")


def test_both_sides_are_drawn_on_one_scale() -> None:
    shown = part().runs
    drawn = [
        next((block for block in run.blocks if isinstance(block, Bars)), None) for run in shown
    ]
    assert drawn[0] is not None
    base, head = drawn[0].bars

    # then: head is the longest bar of all, and base is as long as its share of it
    assert (base.run, head.run) == ("base", "head")
    assert sum(
        float(segment["width"].removesuffix("%")) for segment in head.segments
    ) == pytest.approx(100, abs=0.1)
    assert sum(
        float(segment["width"].removesuffix("%")) for segment in base.segments
    ) == pytest.approx(100 * 2930 / 5210, abs=0.1)
    assert drawn[2:] == [None, None]
    assert "No bars: no trace." in shown[2].blocks
    assert "No bars: the run is on one side only." in shown[3].blocks
    assert [one.open for one in shown] == [True, True, False, False]


def test_findings_stand_by_status_what_fails_first() -> None:
    new, fixed, unchanged, unknown = part().findings

    assert [(one.status, one.total, one.open) for one in (new, fixed, unchanged, unknown)] == [
        ("new", "2", True),
        ("fixed", "1", True),
        ("unchanged", "20", False),
        ("not looked for", "1", False),
    ]
    assert unknown.rows[0].why == f"not looked for in head: {profiles.NO_MEMORY}"
    assert [row.fails for row in new.rows] == [True, False]
    assert (new.rows[0].counts, new.rows[0].anchor) == ("17, was 0", "KGP201-read000")
    assert fixed.rows[0].anchor == ""


def test_a_page_that_has_no_room_keeps_the_kinds() -> None:
    bare = replace(LEVELS[0], kernel_rows=0)
    found = part(limits=bare)

    tables = [block for block in found.runs[0].blocks if isinstance(block, Table)]
    assert [table.columns[0].name for table in tables][:3] == [
        "the window",
        "kind",
        "compile stage",
    ]


def test_environments_that_differ_are_said_in_the_first_lines() -> None:
    found = part(profiles.other_machine())

    assert found.comparability == "The environments differ in 2 facts, so times are not compared."
    assert texts(found.differences[0]) == (
        ("GPU", "Invented 9000", "Invented 9001"),
        ("flag TORCH_LOGS", "not set", "+dynamo"),
    )


def test_every_verdict_on_the_page_stands_beside_its_word() -> None:
    page = Html().render(profiles.comparison())

    cells = re.findall(
        r'<td class="kind judged ([\w-]+)(?: wrong)?">\s*<span aria-hidden="true">(.)</span> ([\w ]+?)\s*</td>',  # noqa: E501
        page,
    )

    assert {(style, word) for style, _, word in cells} == {
        (word.replace(" ", "-"), word) for word in MetricVerdict
    }
    assert {word: symbol for _, symbol, word in cells} == compare_words.SYMBOLS


def test_what_is_unknown_is_skipped_not_zero() -> None:
    unknown = Skipped(reason="no trace")

    assert compare_words.value(metric(), unknown) == "\u2013"
