"""The flame graph of a run says in words and in a table what it draws."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from kgprof.document.flame_chart import Icicle, flame_folds, short_name
from kgprof.document.table import Fold
from kgprof.model import FlameGraph, RunReport, Skipped
from kgprof.render import by_name
from kgprof.render.html import LEVELS
from tests.render import profiles
from tests.render.flames import flame
from tests.render.tables import drawn, notes, tables, texts

LIMITS = LEVELS[0]


def run(of: FlameGraph | Skipped, index: int = 0) -> RunReport:
    return msgspec.structs.replace(profiles.clean().runs[index], flame=of)


def chart(of: FlameGraph) -> Fold:
    (found,) = flame_folds([run(of)], "/src", LIMITS)
    return found


def test_one_sentence_says_what_took_longest_and_what_the_recorder_took() -> None:
    found = chart(flame())

    assert found.lead == (
        "Top self time: <built-in function kernel> (67.2 %), aten::addmm (10.1 %), aten::linear "
        "(6.7 %); kgprof overhead 1.3 %."
    )
    assert found.caption == "0.596 ms per step over 5 steps, STACK pass"


def test_every_box_says_what_it_is_where_and_how_long() -> None:
    drawing = drawn(Icicle, chart(flame()).blocks)

    assert drawing is not None
    by_title = {box["title"].partition("\n")[0]: box for box in drawing.boxes}
    step, kernel = by_title["step"], by_title["<built-in function kernel>"]
    assert by_title["score <of> & a thing"]["title"] == (
        "score <of> & a thing\nPython, policy.py:77; 0.0740 ms per step, 12.4 %; itself 0.0300 ms; "
        "called 1.00 times"
    )
    assert (kernel["label"], kernel["style"], kernel["y"]) == ("kernel", "f-builtin", 5 * 24)
    assert step["title"].endswith("called 1.00 times")
    assert by_title["nn.Module: Linear_0"]["label"] == "Linear_0"


def test_what_is_not_drawn_is_said() -> None:
    found = chart(
        msgspec.structs.replace(
            flame(), other_threads_ns=5_000_000, notes=("of 9 steps the first 5",)
        )
    )

    assert notes(found.blocks) == (
        "From a longer recording: of 9 steps the first 5.",
        "34 frames with less than 0.05 % each, 0.3 % of the time in all, are grouped as (other).",
        "Not drawn: 1 frame narrower than 0.15 % of the step; report.json holds all of it.",
        "Other threads ran operators for 1.00 ms per step, which are not drawn.",
    )


def test_the_table_holds_the_same_functions_by_their_own_time() -> None:
    found = chart(flame(top=3))

    (table,) = tables(found.blocks)
    headings = tuple(column.name for column in table.columns)
    assert headings == (
        "function",
        "self \N{MICRO SIGN}s/step",
        "share",
        "with callees",
        "calls/step",
    )
    assert texts(table) == (
        ("<built-in function kernel> (C function)", "400", "67.2 %", "400", "12.0"),
        ("aten::addmm (operator)", "60.0", "10.1 %", "60.0", "6.00"),
        ("aten::linear (operator)", "40.0", "6.7 %", "40.0", "1.00"),
    )
    assert isinstance(found.blocks[-1], Fold)
    assert notes(found.blocks[-1].blocks) == ("38 more functions: 93.5 \N{MICRO SIGN}s per step.",)


def test_kgprofs_wrapper_of_a_workload_is_the_recorders_and_what_it_calls_is_not() -> None:
    found = chart(
        flame(
            (
                (0, "step", "", 0, "step", 0.0, 1),
                (1, "step", "/w/kgprof/workloads/user.py", 9, "profiler", 10.0, 1),
                (2, "train", "/src/train.py", 1, "python", 50.0, 1),
                (1, "step", "torch/profiler/profiler.py", 9, "profiler", 15.0, 1),
                (2, "<built-in function any>", "", 0, "builtin", 25.0, 1),
            )
        )
    )

    assert found.lead.endswith("kgprof overhead 50.0 %.")


def test_runs_beyond_the_limit_keep_their_table() -> None:
    runs = [run(flame()), run(Skipped(reason="killed")), run(flame(), 1)]

    first, second = flame_folds(runs, "", replace(LIMITS, flames=1))

    assert (first.anchor, second.anchor) == ("flame-run-1", "flame-run-3")
    # then: the faster one keeps its drawing
    assert drawn(Icicle, second.blocks) is not None
    assert (
        first.blocks[0]
        == "No flame graph: left out to keep the page under 1 MB (it is in report.json)."
    )
    assert texts(tables(second.blocks)[0]) == texts(tables(first.blocks)[0])


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("<built-in method ones of type object>", "ones"),
        ("<built-in function kernel>", "kernel"),
        ("<built-in method  of pybind11 object>", "<built-in method  of pybind11 object>"),
        ("nn.Module: Linear_0", "Linear_0"),
        ("forward", "forward"),
    ],
)
def test_a_box_names_the_function_and_leaves_away_what_all_of_its_kind_share(
    name: str, short: str
) -> None:
    assert short_name(name) == short


def test_a_kind_and_a_span_of_time_that_are_not_known_are_no_markup() -> None:
    of = flame((((0, "step", "", 0, "step", 1.0, 1)), (1, "f", "", 0, '"><script>', 9.0, 1)))

    text = by_name("html").render(
        msgspec.structs.replace(
            profiles.clean(), runs=(run(msgspec.structs.replace(of, per="<script>")),)
        )
    )

    assert 'class="f-python"' in text
    assert text.count("<script") == by_name("html").render(profiles.clean()).count("<script")


def test_a_page_of_runs_without_stacks_has_no_such_section() -> None:
    runs = tuple(
        msgspec.structs.replace(run, flame=Skipped(reason="x")) for run in profiles.clean().runs
    )

    text = by_name("html").render(msgspec.structs.replace(profiles.clean(), runs=runs))

    assert 'id="flame"' not in text
