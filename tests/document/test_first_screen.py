"""What the first screen of a comparison draws, and what it puts the change down to."""

from __future__ import annotations

import msgspec
import pytest

from kgprof import model as m
from kgprof.document.finding_list import finding_list
from kgprof.document.first_screen import first_screen
from kgprof.document.table import Shown
from kgprof.render.html import LEVELS
from tests.render import profiles


def screen(comparison: m.Comparison) -> Shown:
    profile = msgspec.structs.replace(profiles.comparison(), comparison=comparison)
    return first_screen(profile, finding_list(profile, LEVELS[0]))


def compared() -> m.Comparison:
    found = profiles.comparison().comparison
    assert found is not None
    return found


def share(text: str) -> float:
    return float(text.removesuffix("%"))


def test_all_intervals_stand_on_one_axis_with_the_limit() -> None:
    shown = screen(compared())["intervals"]

    ticks = {text: share(x) for x, text in shown["ticks"]}
    per_percent = (ticks["+10 %"] - ticks["0 %"]) / 10
    worse, open_ = shown["rows"]
    # then: one zero, and each interval and limit lies where its percent do
    assert share(shown["zero"]) == ticks["0 %"]
    assert share(worse["x"]) - ticks["0 %"] == pytest.approx(9.8 * per_percent, abs=0.01)
    assert share(worse["width"]) == pytest.approx((15.1 - 9.8) * per_percent, abs=0.01)
    for row in (worse, open_):
        assert share(row["limit"]) - ticks["0 %"] == pytest.approx(5 * per_percent, abs=0.01)
        assert share(row["limit"]) + share(row["beyond"]) == pytest.approx(100, abs=0.01)
    assert (worse["ends"], worse["verdict"]) == ("+9.8 to +15.1 %", "worse")


def test_without_an_interval_none_is_drawn() -> None:
    runs = tuple(msgspec.structs.replace(run, metrics=()) for run in compared().runs)

    assert screen(msgspec.structs.replace(compared(), runs=runs))["intervals"] == {}


def test_the_changed_line_and_the_fix_of_the_first_cause_are_shown() -> None:
    first, *others = compared().causes
    place = m.Location("pkg/policy.py", 77, "choose", text="  n = x.item()")
    was = m.Location("pkg/policy.py", 70, "choose", text="  n = 3\n\n  m = 4")
    put_down = msgspec.structs.replace(first, changed=place, was=was)

    shown = screen(msgspec.structs.replace(compared(), causes=(put_down, *others)))

    assert shown["diff"] == [
        ("at", "@@ policy.py:77 @@"),
        ("gone", "- n = 3"),
        ("gone", "- m = 4"),
        ("come", "+ n = x.item()"),
    ]
    assert shown["fix"]["label"] == "What to do"
    assert screen(compared())["diff"] == []


def test_where_no_cause_is_known_what_differs_without_a_clock_leads() -> None:
    place = m.Location("pkg/model.py", 12, "forward", text="y = x.clone()")
    difference = m.WorkDifference(m.WorkAspect.OPERATORS, "+ clone", place, changed=place)
    work = m.ComparedWork(differs=True, rows=(), differences=(difference,))
    first, *others = compared().runs
    runs = (msgspec.structs.replace(first, work=work, causes=()), *others)

    shown = screen(msgspec.structs.replace(compared(), causes=(), runs=runs))

    (told,) = shown["causes"]
    assert (told["text"], told["amount"], told["place"]) == (
        "operators: + clone",
        "unknown",
        "pkg/model.py:12",
    )
    assert shown["diff"][-1] == ("come", "+ y = x.clone()")
    assert shown["fix"]["label"] == ""
