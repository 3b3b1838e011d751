"""A sheet is the same thing three times, and nothing in it can be anything but text."""

from __future__ import annotations

from kgprof import model as m
from kgprof.document.sheet import Code, Section, Sheet
from kgprof.document.table import Facts, Fold, missing, number, plain
from kgprof.render import sheet

HOSTILE = "<script>x</script>\x1b[31m|`_"
SHEET = Sheet(
    title="sweep of model.py:step",
    status=m.VerdictStatus.OK,
    verdict="Use mode='default'.",
    trust="Three processes a cell.",
    facts=("NVIDIA H200", "torch 2.13"),
    sections=(
        Section(
            title="Cells & modes",
            intro="Medians.",
            blocks=(
                plain(
                    "cells",
                    ("mode", "ms/step"),
                    [("eager", number(1.234, "n = 40")), ("default", missing("died"))],
                ),
                "A note.",
                ("About", HOSTILE),
                Fold("more", blocks=("folded",)),
                Code(text="torch.compile(f)\n```"),
                Facts((("cache", "12 MB"),)),
            ),
        ),
    ),
)


def test_the_page_has_every_block_and_nothing_that_runs() -> None:
    page = sheet.html(SHEET)

    assert '<section class="verdict ok"' in page
    assert '<h2 id="cells-modes">Cells &amp; modes' in page
    assert "&lt;script&gt;x&lt;/script&gt;" in page
    assert "<script" not in page
    assert "\x1b" not in page
    assert "default-src &#39;none&#39;" in page
    for words in (
        "Three processes a cell.",
        "NVIDIA H200",
        "A note.",
        "folded",
        "torch.compile(f)",
        "12 MB",
        "died",
    ):
        assert words in page


def test_markdown_has_tables_folds_and_code_that_cannot_end_early() -> None:
    lines = sheet.markdown(SHEET).splitlines()

    assert lines[0] == "## sweep of model.py:step"
    assert "| eager | 1.23<br><sub>n = 40</sub> |" in lines
    assert lines[lines.index("<summary>more</summary>") + 2] == "folded"
    opened = lines.index("````python")
    assert lines[opened + 1 : opened + 4] == ["torch.compile(f)", "```", "````"]
    assert "<script>" not in "".join(lines)


def test_a_terminal_has_the_verdict_first_and_no_control_characters() -> None:
    lines = sheet.text(SHEET, width=80).splitlines()

    assert lines[:2] == ["sweep of model.py:step", "OK: Use mode='default'."]
    assert "    torch.compile(f)" in lines
    assert "\x1b" not in "".join(lines)
