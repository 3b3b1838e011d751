"""HTA's figures beside ours, as the page, Markdown, the terminal and JSON say them."""

from __future__ import annotations

import json

import msgspec
import pytest

from kgprof.document.escaping import one_line
from kgprof.document.table import Fold
from kgprof.document.trace_table import (
    call_outcomes,
    holistic_folds,
    hta_caption,
    hta_difference,
    hta_quantity,
    hta_sentence,
)
from kgprof.model import HolisticCall, HolisticCheck, HolisticFigure, Profile, Skipped
from kgprof.render import by_name
from kgprof.render.html import LEVELS
from tests.render import profiles
from tests.render.tables import notes, small, tables, texts

LIMITS = LEVELS[0]
GONE = Skipped(reason="it raised")


def check_of(number: int) -> HolisticCheck:
    found = profiles.cuda().runs[number].holistic
    assert isinstance(found, HolisticCheck)
    return found


AGREEING, DIFFERING = check_of(0), check_of(5)


def row(percent: float | Skipped) -> HolisticFigure:
    return HolisticFigure(
        name="idle", unit="us", ours=1.0, hta=1.0, difference_percent=percent, differs=False
    )


def with_checks(*checks: HolisticCheck | Skipped) -> Profile:
    profile = profiles.cuda()
    runs = tuple(
        msgspec.structs.replace(run, holistic=check)
        for run, check in zip(profile.runs, checks, strict=False)
    )
    return msgspec.structs.replace(profile, runs=runs)


def test_each_figure_stands_beside_its_difference_or_why_there_is_none() -> None:
    fold = holistic_folds(profiles.cuda().runs, LIMITS)[5]
    figures, kernels, calls = tables(fold.blocks)

    dash = "\N{EN DASH}"
    assert texts(figures) == (
        ("kernels, copies and fills", "31.4 ms", "39.9 ms", "+27.00 %"),
        ("GPU idle", "7.85 ms", "7.85 ms", "< 0.01 %"),
        ("idle: host_wait", "3.93 ms", dash, dash),
        ("longest queue, stream 7", "1,049", "1,049", "0 %"),
        ("bandwidth, Memcpy DtoD", dash, "1,814 GB/s", dash),
    )
    assert [small(row.cells[0]) for row in figures.rows] == [
        (),
        ("between the first and the last of them",),
        ("get_idle_time_breakdown: raised: KeyError: 'index_correlation'",),
        ("most operations launched but not started",),
        ("kgprof does not read the sizes of copies",),
    ]
    assert [row.cells[3].wrong for row in figures.rows] == [True, False, False, False, False]
    assert texts(kernels.only("kernels that differ", "difference")) == (
        ("triton_poi_fused_index_mul_0", "+710.00 %"),
    )
    assert notes(fold.blocks) == ("19 more kernels that differ in report.json.",)
    assert [outcome for _, outcome in texts(calls)] == ["ok", "empty", "raised", "not called"]
    assert isinstance(fold.blocks[-1], Fold)
    assert notes(fold.blocks[-1].blocks) == ("HolisticTraceAnalysis 0.5.0, pandas 3.1.1",)


@pytest.mark.parametrize(
    ("percent", "said"),
    [
        (0.0, "0 %"),
        (0.004, "< 0.01 %"),
        (-0.004, "< 0.01 %"),
        (0.5, "+0.50 %"),
        (-100.0, "-100.00 %"),
        (GONE, "\N{EN DASH}"),
    ],
)
def test_a_difference_says_its_sign_and_is_0_only_where_there_is_none(
    percent: float | Skipped, said: str
) -> None:
    assert hta_difference(row(percent)) == said


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [
        (1234.5, "us", "1.23 ms"),
        (1049.0, "operations", "1,049"),
        (30.25, "%", "30.2 %"),
        (0.0028, "GB/s", "0.00280 GB/s"),
        (GONE, "us", "\N{EN DASH}"),
    ],
)
def test_a_quantity_says_its_unit(value: float | Skipped, unit: str, said: str) -> None:
    assert hta_quantity(value, unit) == said


def test_the_caption_counts_what_was_compared_and_what_differs() -> None:
    assert hta_caption(AGREEING) == "3 figures and 31 kernels agree within 0.5 %"
    assert hta_caption(DIFFERING) == "1 of 3 figures and 20 of 31 kernels differ by more than 0.5 %"
    nothing = msgspec.structs.replace(AGREEING, figures=AGREEING.figures[2:3], kernels=0)
    assert hta_caption(nothing) == "nothing could be compared"
    assert call_outcomes(AGREEING) == "1 ok, 1 empty, 1 raised, 1 not called"


def test_a_small_page_says_what_it_leaves_out() -> None:
    (fold,) = holistic_folds(profiles.cuda().runs[5:], msgspec.structs.replace(LIMITS, lines=2))

    assert [name for name, *_ in texts(tables(fold.blocks)[0])] == [
        "kernels, copies and fills",
        "GPU idle",
    ]
    assert notes(fold.blocks) == ("3 more figures and 19 more kernels that differ in report.json.",)


def test_the_page_has_the_section_where_hta_was_asked_and_nowhere_else() -> None:
    html = by_name("html").render(profiles.cuda())

    assert 'href="#holistic"' in html
    assert html.count("HTA&#39;s figures beside ours for") == 6
    assert '<td class="number wrong">+27.00 %</td>' in html
    assert "it ignores cudaGraphLaunch, so it would miss every kernel of a CUDA graph" in html
    for profile in (profiles.clean(), with_checks(GONE, GONE)):
        for name in ("html", "markdown", "text"):
            assert "eld against" not in by_name(name).render(profile)


@pytest.mark.parametrize("name", ["markdown", "text"])
def test_a_sentence_a_run_elsewhere_with_what_differs(name: str) -> None:
    said = " ".join(
        by_name(name).render(with_checks(AGREEING, DIFFERING)).replace("\\", "").split()
    )

    for check in (AGREEING, DIFFERING):
        assert hta_sentence(check)[:100] in said
    assert "triton_poi_fused_index_mul_0 0.0120 ms, HTA 0.0972 ms (+710.00 %)" in said


def test_markdown_says_once_what_hta_was_not_asked_or_did_not_say() -> None:
    said = by_name("markdown").render(with_checks(AGREEING, DIFFERING))

    assert said.count("get_idle_time_breakdown raised: KeyError") == 1
    assert said.count("critical_path_analysis not called: it ignores cudaGraphLaunch") == 1


def test_json_holds_the_check_or_why_there_is_none() -> None:
    document = json.loads(by_name("json").render(with_checks(DIFFERING, GONE)))

    found, missing = (run["holistic"] for run in document["runs"])
    assert msgspec.convert(found, HolisticCheck) == DIFFERING
    assert found["kind"] == "holisticcheck"
    assert missing == {"kind": "skipped", "reason": "it raised"}


def test_hostile_words_of_hta_are_text() -> None:
    hostile = "<script>alert(1)</script>"
    check = msgspec.structs.replace(
        AGREEING, calls=(HolisticCall(name=hostile, outcome="raised", reason=hostile),)
    )

    html = by_name("html").render(with_checks(check))

    assert hostile not in html
    assert one_line(hostile, 100).replace("<", "&lt;").replace(">", "&gt;") in html
