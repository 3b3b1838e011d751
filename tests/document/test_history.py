"""The sheet of a history: a line and a table of each metric that changed, the same figures in each
format."""

from __future__ import annotations

import re

import pytest

from kgprof.compare import CompareSettings, history
from kgprof.document.history import sheet
from kgprof.document.plot import Plot
from kgprof.document.quantity import MINUS
from kgprof.document.table import DASH, Table
from kgprof.model import History, VerdictStatus
from kgprof.render import sheet as printers
from tests.analysis.compared import STEP_US, profile, slower

HOSTILE = "<script>alert(1)</script>"


def course(*factors: float | None, names: tuple[str, ...] = ()) -> History:
    """A step of so many times the usual in each recording; None: without the run."""
    profiles = [
        profile(runs=()) if each is None else slower(profile(), each * STEP_US) for each in factors
    ]
    return history(
        profiles,
        CompareSettings(),
        names or [f"v{number}" for number, _ in enumerate(factors, start=1)],
    )


def blocks(found: History) -> tuple[Plot, Table]:
    (section,) = sheet(found).sections
    line, table = section.blocks[:2]
    assert isinstance(line, Plot)
    assert isinstance(table, Table)
    return line, table


def pieces(line: Plot) -> list[list[tuple[float, float]]]:
    """Points of the drawn line, up to each break."""
    (curve,) = [shape.path for shape in line.shapes if shape.style.startswith("curve")]
    return [
        [
            (float(x), float(y))
            for x, y in (point.split() for point in piece.removesuffix("h2").split("L"))
        ]
        for piece in curve.split("M")[1:]
    ]


def test_the_largest_step_for_the_worse_leads_and_then_how_far_it_went() -> None:
    page = sheet(course(1.0, 1.2, 1.2))

    assert page.status is VerdictStatus.ATTENTION
    assert page.verdict.startswith("step of fused.default +20.0 % at v2")
    assert page.verdict.endswith("step of fused.default +20.0 % from first to last")
    assert sheet(course(1.0, 1.0, 1.01)).status is VerdictStatus.OK
    # At the limit itself nobody knows.
    unsure = sheet(course(1.0, 1.0, 1.05))
    assert unsure.status is VerdictStatus.INCONCLUSIVE
    assert unsure.verdict.startswith("2 of 4 changes cannot be judged")


def test_a_row_for_each_recording_with_both_changes() -> None:
    _, table = blocks(course(1.0, 1.2, 0.9))

    assert [column.name for column in table.columns] == [
        "recording",
        "step",
        "vs first",
        "vs previous",
    ]
    assert [row.cells[1].value for row in table.rows] == pytest.approx(
        [STEP_US, 1.2 * STEP_US, 0.9 * STEP_US], rel=1e-3
    )
    assert [[cell.text for cell in row.cells[2:]] for row in table.rows] == [
        ["", ""],
        ["+20.0 %", "+20.0 %"],
        [f"{MINUS}10.0 %", f"{MINUS}25.0 %"],
    ]
    assert [cell.wrong for row in table.rows for cell in row.cells] == [False] * 6 + [
        True,
        True,
    ] + [False] * 4


def test_the_line_has_a_break_where_nothing_was_measured() -> None:
    line, table = blocks(course(1.0, 1.1, None, 1.1, 1.2))

    assert [len(piece) for piece in pieces(line)] == [2, 2]
    assert table.rows[2].cells[1].text == DASH
    heights = [y for piece in pieces(line) for _, y in piece]
    assert heights == sorted(heights, reverse=True)
    assert all(0 < y < line.bottom for y in heights)


def test_what_is_worse_is_marked_and_says_so() -> None:
    line, _ = blocks(course(1.0, 1.2, 1.2))

    assert [shape.title for shape in line.shapes if shape.style == "p-far"] == [
        "v2 (0123456789): +20.0 % against the previous"
    ]


@pytest.mark.parametrize("number", [3, 40])
def test_labels_of_many_recordings_leave_room_for_each_other(number: int) -> None:
    line, _ = blocks(course(*(1.0 + at / 100 for at in range(number))))

    assert 3 <= len(line.x_ticks) <= 5


def test_a_course_without_a_change_is_drawn_all_the_same() -> None:
    line, _ = blocks(course(1.0, 1.0, 1.0))

    assert len({y for _, y in pieces(line)[0]}) == 1


def test_page_markdown_and_text_have_the_same_figures_and_no_markup_of_others() -> None:
    page = sheet(course(1.0, 1.2, 1.2, names=("v1", HOSTILE, "v3")))
    html, markdown, text = printers.html(page), printers.markdown(page), printers.text(page)

    assert html.count('class="plot"') == html.count('class="curve c-0"') > 0
    assert HOSTILE not in html
    assert "<script" not in html
    for made in (re.sub(r"<[^>]+>", " ", html), markdown, text):
        assert "+20.0 %" in made
        assert re.search(r"1\.200* ms", made)
