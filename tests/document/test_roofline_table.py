"""The table of kernels against the card: its figures, its dashes and their reasons, on the page and
in Markdown."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from kgprof.document.kernel_table import kernel_folds
from kgprof.document.limits import Limits
from kgprof.document.roofline_table import (
    roofline_blocks,
    roofline_table,
    sentence,
    unplaced,
)
from kgprof.document.table import Cell, Drawn, Fold, missing
from kgprof.model import Bound, KernelBreakdown, KernelLaunches, Profile, Roofline, Skipped
from kgprof.render.html import Html
from kgprof.render.markdown import Markdown
from kgprof.render.text import Text
from tests.render import profiles
from tests.render.tables import tables

LIMITS = Limits(
    log_chars=0, host_rows=5, kernel_rows=5, findings=5, runs=9, name=200, lines=9, timelines=1
)
TOTAL_US = 200.0
UNKNOWN = Skipped(reason="no call is known to have launched it")


def launches(**changes: Any) -> KernelLaunches:
    """A Triton kernel that copies 3 MB in 1.5 us, 20 times."""
    made = KernelLaunches(
        name="triton_poi_fused_add_0",
        generator="triton",
        count=20,
        total_us=150.0,
        share=0.75,
        median_us=7.5,
        grid=(2048, 3, 1),
        block=(128, 1, 1),
        registers=53,
        shared_bytes=8192,
        blocks_per_sm=46.5,
        warps=4,
        occupancy_percent=48.0,
        spills=6,
        stages=2,
        bytes_moved=3 * 2**20,
        flops=Skipped(reason="Inductor counts none"),
        bytes_per_s=3.3e12,
        flops_per_s=Skipped(reason="Inductor counts none"),
        bound="memory-bound",
        of_ceiling=0.81,
    )
    return msgspec.structs.replace(made, **changes)


def with_rows(*rows: KernelLaunches, **changes: Any) -> Profile:
    """One CUDA run with these."""
    profile = profiles.cuda()
    run = profile.runs[0]
    assert isinstance(run.kernels, KernelBreakdown)
    assert isinstance(run.kernels.roofline, Roofline)
    plain = {"rows": rows, "rows_left_out": 0, "left_out_us": 0.0, **profiles.totals(rows)}
    roofline = msgspec.structs.replace(run.kernels.roofline, **{**plain, **changes})
    kernels = msgspec.structs.replace(run.kernels, total_us=TOTAL_US, roofline=roofline)
    return msgspec.structs.replace(profile, runs=(msgspec.structs.replace(run, kernels=kernels),))


def cells(row: KernelLaunches) -> dict[str, Cell]:
    run = with_rows(row).runs[0]
    assert isinstance(run.kernels, KernelBreakdown)
    assert isinstance(run.kernels.roofline, Roofline)
    table = roofline_table(run, run.kernels.roofline, LIMITS.kernel_rows)
    return {
        column.name: cell for column, cell in zip(table.columns, table.rows[0].cells, strict=True)
    }


def of_run(profile: Profile) -> tuple[KernelBreakdown, Roofline]:
    kernels = profile.runs[0].kernels
    assert isinstance(kernels, KernelBreakdown)
    assert isinstance(kernels.roofline, Roofline)
    return kernels, kernels.roofline


def test_a_row_says_how_it_was_launched_and_what_it_achieved() -> None:
    found = cells(launches())

    assert [*found.values()] == [
        Cell("triton_poi_fused_add_0"),
        Cell("memory-bound", ("81.0 % of peak",)),
        Cell("7.50", value=7.5),
        Cell("3,300", value=3.3e12, details=("3.00 MiB",)),
        missing("Inductor counts none"),
        Cell("53", value=53, details=("6 spilled",)),
        Cell("48 %", value=48.0),
    ]


def test_what_was_not_measured_is_a_dash_with_its_reason_and_never_a_zero() -> None:
    unknown = dict.fromkeys(
        ("registers", "occupancy_percent", "bytes_per_s", "flops_per_s"), UNKNOWN
    )

    found = cells(launches(**unknown, bound=UNKNOWN, of_ceiling=UNKNOWN))

    assert found["bound by"] == missing(UNKNOWN)
    assert set([*found.values()][3:]) == {missing(UNKNOWN)}


def test_an_occupancy_of_zero_per_cent_is_less_than_one() -> None:
    assert cells(launches(occupancy_percent=0.0))["occupancy"] == Cell("< 1 %", value=0.0)


def test_the_sentence_adds_up_the_placed_time_and_the_rest_has_its_reasons() -> None:
    profile = with_rows(
        launches(total_us=100.0),
        launches(total_us=40.0, bound="latency-bound"),
        launches(total_us=60.0, bound=UNKNOWN, of_ceiling=UNKNOWN),
    )

    assert sentence(*of_run(profile)) == (
        "70.0 % of GPU time classified: memory-bound 50.0 %, latency-bound 20.0 %"
    )
    assert unplaced(*of_run(profile)) == f"Not classified: 30.0 %: {UNKNOWN.reason}"


@pytest.mark.parametrize(
    ("without", "why"),
    [
        ("their measurement was killed", "their measurement was killed"),
        ("", "no kernel's bytes are known"),
    ],
)
def test_where_nothing_is_placed_the_sentence_says_why(without: str, why: str) -> None:
    profile = with_rows(launches(bound=UNKNOWN, of_ceiling=UNKNOWN), without=without, ceilings=())

    assert sentence(*of_run(profile)) == f"no kernel could be classified: {why}"


def test_every_kernel_that_could_be_placed_is_a_circle_and_the_peaks_are_folded_below() -> None:
    profile = with_rows(
        launches(),
        launches(name="k2", of_ceiling=1.7, bound=Bound.IMPOSSIBLE),
        launches(bound=UNKNOWN),
    )

    first, peaks = roofline_blocks(profile.runs, LIMITS)

    assert isinstance(first, Fold)
    assert isinstance(peaks, Fold)
    (drawing,) = (block for block in first.blocks if isinstance(block, Drawn))
    assert [(point["style"], "of peak" in point["title"]) for point in drawing.shown["points"]] == [
        ("r-memory", True),
        ("r-above", True),
    ]
    assert first.run == "run-1"
    assert len(tables(peaks.blocks)) == 1


def test_a_cpu_report_has_no_such_section() -> None:
    profile = profiles.clean()

    assert not [*roofline_blocks(profile.runs, LIMITS)]
    assert 'id="roofline"' not in Html().render(profile)
    assert "against the card" not in Markdown().render(profile)


def test_markdown_has_the_ten_largest_of_the_run_that_could_be_placed_and_text_a_sentence() -> None:
    profile = with_rows(*(launches(name=f"triton_{number}") for number in range(12)))

    page, said = Markdown().render(profile), Text().render(profile)

    rows = [row for row in page.splitlines() if re.match(r"\| triton_\d", row)]
    assert len(rows) == 10
    assert rows[0] == (
        "| triton_0 | memory-bound<br><sub>81.0 % of peak</sub> | 7.50 | 3,300<br><sub>3.00 "
        "MiB</sub> | \N{EN DASH} | 53<br><sub>6 spilled</sub> | 48 % |"
    )
    assert "900.0 % of GPU time classified" in " ".join(said.split())


def test_the_table_of_kernels_says_what_binds_each_and_what_it_could_save() -> None:
    profile = with_rows(launches())
    kernels = profile.runs[0].kernels
    assert isinstance(kernels, KernelBreakdown)
    named = msgspec.structs.replace(kernels.rows[0], name="triton_poi_fused_add_0")
    rows = (named, *kernels.rows[1:])
    run = msgspec.structs.replace(
        profile.runs[0], kernels=msgspec.structs.replace(kernels, rows=rows)
    )
    (fold,) = kernel_folds((run,), "", LIMITS)
    first, second = tables(fold.blocks)[0].rows[:2]

    assert first.cells[-2].text == "memory-bound"
    assert first.cells[-2].details == ("81.0 % of peak",)
    saved = 150.0 * (1 - 0.81) / kernels.steps
    assert first.cells[-1].value == pytest.approx(saved)
    assert "53 registers, 6 spilled" in " ".join(
        text for small in first.cells[1].below for text in small.texts
    )
    # then: of what was not placed nothing is claimed
    assert not second.cells[-1].measured
    page = Html().render(with_rows(launches()))
    assert "4,000 GB/s to 4,200 GB/s, n = 20" in page
    assert "690 TFLOP/s" in page
