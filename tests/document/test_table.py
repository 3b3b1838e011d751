"""One table in its three prints, with strings that would steer each of them."""

from __future__ import annotations

import io

import pytest
from markupsafe import Markup
from rich.console import Console

from kgprof.document.table import (
    Cell,
    Column,
    Facts,
    Fold,
    Small,
    Table,
    bounded,
    markdown,
    missing,
    number,
    plain,
    row,
    share,
    terminal,
    timed,
    whole,
)
from kgprof.model import PassName, Skipped, Spread
from kgprof.render import html
from tests.render import profiles

LIMITS = html.LEVELS[0]
TABLE = Table(
    label="Times",
    columns=(
        Column("run", style="name"),
        Column("ms per step", title="the median", details=1),
        Column("calls"),
    ),
    rows=(
        row(
            Cell("fused", name="fused.default", below=(Small(("default",), "mode"),)),
            Cell("1.50", details=("1.40 to 1.60 in all", "n = 9"), value=1.5, bar=0.25),
            whole(1200),
            anchor="run-1",
        ),
        row(Cell("eager", wrong=True), missing("it was killed"), Cell("2", mark="!"), style="dead"),
    ),
    totals=(row("all", "", "1,202"),),
    notes=("Medians.", ("fused", "a note")),
    style="sortable",
)


def on_the_page(*blocks: object) -> str:
    source = '{% from "partials/macros.html.jinja" import blocks with context %}{{ blocks(items) }}'
    return str(Markup(html.environment().from_string(source).render(items=blocks)))


def on_a_terminal(table: Table) -> str:
    console = Console(file=io.StringIO(), width=80, markup=False)
    console.print(terminal(table))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_markdown_has_a_row_a_run_with_what_qualifies_its_figure_and_the_sum_last() -> None:
    assert markdown(TABLE) == [
        "| run | ms per step | calls |",
        "| :-- | --: | --: |",
        "| fused.default | 1.50<br><sub>1.40 to 1.60 in all, n = 9</sub> | 1,200 |",
        "| **eager** | \N{EN DASH} | 2 |",
        "| all |  | 1,202 |",
    ]


def test_a_terminal_has_as_many_details_as_there_is_room_for() -> None:
    lines = [line.split() for line in on_a_terminal(TABLE).splitlines()]

    assert lines == [
        ["run", "ms", "per", "step", "calls"],
        ["fused.default", "1.50", "1,200"],
        ["1.40", "to", "1.60", "in", "all"],
        ["eager", "\N{EN DASH}", "2"],
        ["all", "1,202"],
    ]


def test_the_page_sorts_by_values_and_says_why_a_figure_is_missing() -> None:
    page = on_the_page(TABLE)

    assert '<th scope="col" class="number long" title="the median">ms per step</th>' in page
    assert '<tr id="run-1">' in page
    assert '<th scope="row" class="name">fused <span class="mode">default</span></th>' in page
    assert (
        '<td class="number" data-sort="1.5">1.50 <span class="detail long">1.40 to 1.60 in '
        "all</span>" in page
    )
    assert '<rect class="fill" width="25.000%"' in page
    assert '<td class="number missing" title="it was killed">\N{EN DASH}</td>' in page
    assert '<th scope="row" class="name wrong">eager</th>' in page
    assert '<span aria-hidden="true">!</span> 2</td>' in page
    assert page.index("<tfoot>") < page.index("1,202") < page.index("</tfoot>")
    assert '<p class="note">Medians.</p>' in page
    assert '<p class="note"><strong>fused:</strong> a note</p>' in page


def test_folds_hold_facts_tables_and_texts() -> None:
    page = on_the_page(
        Fold(
            "batched",
            blocks=("Known.", Facts((("a", "b"),))),
            caption="9 names",
            anchor="x",
        )
    )

    assert '<details id="x">' in page
    assert '<summary>batched <span class="detail">9 names</span></summary>' in page
    assert "<dt>a</dt><dd>b</dd>" in page


@pytest.mark.parametrize("hostile", profiles.HOSTILE)
def test_hostile_strings_are_text_in_every_print(hostile: str) -> None:
    # given: the string in every field that holds words of others
    cell = Cell(
        hostile, details=(hostile,), below=(Small((hostile,), fold=hostile),), title=hostile
    )
    table = bounded(
        Table(
            label=hostile,
            columns=(Column(hostile, title=hostile),),
            rows=(row(cell),),
            notes=((hostile, hostile),),
        ),
        LIMITS,
    )

    page, text = on_the_page(table), on_a_terminal(table)
    head, rows = markdown(table)[:2], markdown(table)[2:]

    assert "\x1b" not in page + "".join((*head, *rows)) + text
    assert "<script" not in page.lower() + "".join((*head, *rows)).lower()
    assert "<img" not in page.lower()
    assert len({line.count("|") - line.count("\\|") for line in (*head, *rows)}) == 1
    assert "\n" not in "".join((*head, *rows))


def test_no_text_is_longer_than_the_page_has_room_for() -> None:
    long = "x" * 5000

    shown = bounded((plain(long, (long,), ((long,),)), long), LIMITS)

    assert isinstance(shown[0], Table)
    texts = (shown[0].label, shown[0].columns[0].name, shown[0].rows[0].cells[0].text, shown[1])
    assert {len(text) for text in texts} == {2 * LIMITS.name}


def test_columns_are_picked_by_name() -> None:
    assert TABLE.only("calls", "run").rows[1].cells == [
        Cell("2", mark="!"),
        Cell("eager", wrong=True),
    ]
    table = plain("", ("run", "kind", "ms"), (), words=2, first="name")
    assert [column.style for column in table.columns] == ["name", "", "number"]


def test_cells_of_figures() -> None:
    gone = Skipped(reason="gone")
    spread = Spread(
        median=1500.0,
        p10=1400.0,
        p90=1600.0,
        minimum=1300.0,
        maximum=1700.0,
        samples=20,
        unit="us",
        measured_in=PassName.TIMING,
    )

    assert timed(spread, 1e-3, " ms") == Cell(
        "1.50 ms", details=("1.40\N{EN DASH}1.60", "n = 20"), value=1.5
    )
    assert number(1.5, "each") == Cell("1.50", details=("each",), value=1.5)
    assert share(0.5) == Cell("50.0 %", value=0.5)
    assert {timed(gone), number(gone), whole(gone)} == {missing("gone")}
