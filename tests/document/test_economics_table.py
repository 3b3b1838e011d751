"""Compile time against time saved: the figures of each run, and what is not known of it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kgprof.document.economics_table import HEADINGS, economics_table, sentences
from kgprof.document.finding_list import finding_list
from kgprof.document.first_screen import first_screen
from kgprof.model import Economics, Skipped
from kgprof.render import by_name
from kgprof.render.html import LEVELS
from tests.render import profiles
from tests.render.tables import texts

LIMITS = LEVELS[0]


@pytest.mark.parametrize(
    ("is_known", "tile"),
    [(False, "2 compilations"), (True, "break-even after 6,200 steps")],
)
def test_the_tile_of_the_first_call_names_the_break_even(is_known: bool, tile: str) -> None:
    profile = profiles.watched()
    compiled = next(run for run in profile.runs if isinstance(run.economics, Economics))
    assert isinstance(compiled.economics, Economics)
    cold = compiled.economics.cold if is_known else Skipped(reason="not known")
    economics = replace(compiled.economics, cold=cold)
    alone = replace(profile, runs=(replace(compiled, economics=economics),), findings=())

    screen = first_screen(alone, finding_list(alone, LIMITS))

    assert tile in {each.below for each in screen["tiles"] if each.label == "First call"}.pop()
    assert screen["bars"] == ()


def test_a_row_holds_what_compiling_takes_both_times_and_the_break_even() -> None:
    shown = economics_table(profiles.watched())

    assert tuple(column.name for column in shown.columns) == ("run", *HEADINGS)
    assert [(cell.text, tuple(cell.details)) for cell in shown.rows[0].cells] == [
        ("batched.default", ()),
        ("pays", ("saves 0.0457 ms/candidate",)),
        ("6,200 steps", ("306,346 candidates", "≈ 18.2 s of running")),
        ("14.2", ()),
        ("0.0593 ms/candidate", ("0.0557\N{EN DASH}0.0712", "n = 4, min\N{EN DASH}max")),
        ("0.105 ms/candidate", ("0.0987\N{EN DASH}0.126", "n = 4, min\N{EN DASH}max")),
    ]
    assert texts(shown.only("run", "worth it"))[1:] == (
        ("torch_cond.default", "never"),
        ("fused.default", "not observed"),
    )
    assert shown.rows[1].cells[1].details == ("loses 0.00400 ms/candidate",)


def test_what_is_not_known_is_said_once_a_run_with_its_reason() -> None:
    assert economics_table(profiles.watched()).notes == [
        "torch_cond.default: the break-even: slower than eager",
        "fused.default: the eager run's time: this strategy was not run in mode eager; add --mode "
        "eager",
    ]


@pytest.mark.parametrize("name", ["text", "markdown"])
def test_reports_without_the_table_say_which_runs_pay(name: str) -> None:
    said = by_name(name).render(profiles.watched())

    (sentence,) = sentences(profiles.watched())
    assert sentence in " ".join(said.split()).replace("\\", "")
    assert "torch\\_cond.default: it never earns back" not in said


def test_the_section_stands_behind_compilation_where_a_run_was_weighed_and_is_nowhere_else() -> (
    None
):
    page = by_name("html").render(profiles.watched())

    assert 0 < page.index('<h2 id="compile">') < page.index('<h2 id="economics">')
    assert 'id="economics"' not in by_name("html").render(profiles.gate())
