"""`kgprof compare` over the planted regressions and the pairs in which nothing changed: what it
must not miss, and what it must not make up.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kgprof.collectors import RULES
from kgprof.render.markdown import Markdown
from tests.gathering import for_all
from tests.regressions.planted import NO_CHANGE, Regression, regressions
from tests.regressions.score import Compared, Profiles


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> Profiles:
    return Profiles(tmp_path_factory.mktemp("recordings"))


@pytest.fixture(scope="module")
def compared(profiles: Profiles) -> Mapping[Regression, Compared]:
    return {one: profiles.planted(one) for one in regressions()}


def test_the_right_cause_is_named_first(compared: Mapping[Regression, Compared]) -> None:
    missed = [one.name for one, pair in compared.items() if pair.named(one.truth) != 1]

    assert len(compared) == 20
    assert missed == []


@for_all(regressions(), lambda regression: regression.name)
def test_the_first_cause_has_a_line_of_the_patch(
    regression: Regression, profiles: Profiles
) -> None:
    """Given what git says changed between the two commits."""
    cause = profiles.planted(regression, regression.recorded).comparison.causes[0]

    assert cause.changed is not None
    assert (cause.changed.file, cause.changed.line) in regression.added


def test_among_other_changes_no_wrong_line_is_named(profiles: Profiles) -> None:
    """The commits also hold four changes that this Recording never ran."""
    others = [other for other in regressions() if other.name[:2] in ("09", "11", "16", "17")]
    lines = {}
    for one in regressions():
        beside = (other.recorded for other in others if other != one)
        pair = profiles.planted(one, *beside, one.recorded)
        lines[one] = pair.comparison.causes[0].changed
    named = {one: place for one, place in lines.items() if place is not None}

    assert [
        one.name for one, place in named.items() if (place.file, place.line) not in one.added
    ] == []
    assert len(named) >= 16


def test_without_the_commits_the_sources_say_what_changed(
    compared: Mapping[Regression, Compared],
) -> None:
    """These old Recordings hold the files that torch's records name, today's every module of the
    project."""
    assert sum(pair.points_into(one) for one, pair in compared.items()) >= 10


def test_a_comment_says_it_in_a_screen_before_anything_is_opened(
    compared: Mapping[Regression, Compared],
) -> None:
    opened = {
        one.name: Markdown().render(pair.head).partition("<details>")[0]
        for one, pair in compared.items()
    }

    assert {name: len(text) for name, text in opened.items() if len(text) >= 1_500} == {}
    # then: the cause has its line, unless it is the finding that the first line names
    assert [
        name
        for name, text in opened.items()
        if "**Regression:**" in text and "**Cause:** " not in text and ": new KGP" not in text
    ] == []


def test_nothing_is_made_up_where_nothing_changed(profiles: Profiles) -> None:
    alarms = [pair.name for pair in NO_CHANGE if profiles.no_change(pair).raises_alarm]

    assert len(NO_CHANGE) == 14
    assert alarms == []


def test_a_time_that_is_inconclusive_hides_no_new_finding(
    compared: Mapping[Regression, Compared],
) -> None:
    from_times = {rule.id for rule in RULES if rule.judged_from_times}
    doubtful = {
        one.name: pair
        for one, pair in compared.items()
        if any(
            metric.verdict == "inconclusive"
            for run in pair.comparison.runs
            for metric in run.metrics
        )
        and any(found.level != "note" and found.rule not in from_times for found in pair.new)
    }

    assert len(doubtful) >= 3
    assert {name: pair.head.exit_code for name, pair in doubtful.items()} == dict.fromkeys(
        doubtful, 1
    )
