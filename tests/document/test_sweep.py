"""The sheet of a sweep: its verdict, what never pays, and what was not measured."""

from __future__ import annotations

import msgspec

from kgprof import model as m
from kgprof.document.quantity import DASH
from kgprof.document.sheet import Section, Sheet
from kgprof.document.sweep import sheet
from kgprof.document.table import Table
from kgprof.measures.sweep import weighed
from kgprof.render import sheet as printers
from tests.sweeps import DEFAULT, EAGER, TUNED, cell, dead, sweep

TIMES = "\N{MULTIPLICATION SIGN}"
AOT = m.Cell(mode="default", backend="aot_eager")
ONNX = m.Cell(mode="default", backend="onnxrt")
CELLS = (
    cell(EAGER, 200, 200, 200, cold_s=[0.0], warm_s=0.0),
    cell(DEFAULT, 100, 100, 100, cold_s=[10.0, 8.0, 12.0]),
    cell(AOT, 210, 210, 210, cold_s=[2.0]),
    dead(TUNED),
    m.CellResult(cell=ONNX, not_run="not installed: backend onnxrt needs the package onnxruntime"),
)


def shown(*further: Section) -> Sheet:
    return sheet(weighed(sweep(*CELLS), 1_000_000), further)


def rows(page: Sheet, section: str) -> dict[str, list[str]]:
    (table,) = (
        block
        for part in page.sections
        if part.title == section
        for block in part.blocks
        if isinstance(block, Table)
    )
    return {row.cells[0].text: [cell.text for cell in row.cells[1:]] for row in table.rows}


def test_the_cells_stand_in_the_order_of_their_totals_and_what_is_slower_never_pays() -> None:
    found = rows(shown(), "Recommended mode")

    assert list(found)[:3] == ["default", "eager", "backend aot_eager"]
    assert "a cold start and 1,000,000 steps" in shown().sections[0].intro
    step, faster, total, first, warm, pays, next_best = found["default"]
    assert (step, faster, first, warm) == ("100 µs", f"2.00{TIMES}", "10.0", "1.00")
    assert (pays, next_best, total) == ("100,000", "100,000", "110")
    assert found["backend aot_eager"][5:] == ["never", "never"]
    assert found["eager"][5] == DASH


def test_a_cell_without_a_start_of_eager_is_not_said_never_to_pay() -> None:
    eager = cell(EAGER, 200, 200, 200, cold_s=[0.0])
    times = [msgspec.structs.replace(each, start_s=()) for each in eager.measured()]
    processes = [
        msgspec.structs.replace(each, measured=without)
        for each, without in zip(eager.processes, times, strict=True)
    ]
    unstarted = msgspec.structs.replace(eager, processes=tuple(processes))
    page = sheet(weighed(sweep(unstarted, CELLS[1]), 1_000_000))

    assert rows(page, "Recommended mode")["default"][5] == DASH
    assert rows(page, "Benefit of compiling")["default"][0] == DASH


def test_memory_and_trust_are_those_of_a_size() -> None:
    def sized(batch: str, memory: int) -> list[m.CellResult]:
        at = {"size": ("--batch", batch)}
        eager, default = (msgspec.structs.replace(each, **at) for each in (EAGER, DEFAULT))
        first = cell(eager, 200, 200, 220 if batch == "8" else 200, cold_s=[0.0], memory=memory)
        return [first, cell(default, 100, 100, 100, cold_s=[1.0], memory=2 * memory)]

    page = sheet(weighed(sweep(*sized("8", 1_000), *sized("64", 9_000)), 1_000_000))
    (table,) = (part.blocks[0] for part in page.sections if part.title == "Benefit of compiling")

    assert isinstance(table, Table)
    more = [row.cells[-1].details for row in table.rows if row.cells[0].text.startswith("default")]
    assert more == [("+100 % over eager",)] * 2
    assert "--batch 8: Each cell was timed" in page.trust
    assert "; --batch 64: Each cell was timed" in page.trust


def test_what_a_start_costs_says_how_consistent_it_is() -> None:
    page = shown()
    (consistency,) = (
        block
        for part in page.sections
        if part.title == "Cost of compiling"
        for block in part.blocks
        if isinstance(block, str)
    )

    assert consistency == "default: 3 cold starts took 8.00 to 12.0 s, 40.0 % of the median apart."
    assert rows(page, "Benefit of compiling")["default"][0] == "poor"


def test_a_dead_cell_and_one_that_was_not_run_say_why() -> None:
    text = printers.markdown(shown())

    assert "**max-autotune:** was killed: SIGABRT" in text
    assert "Fatal Python error: Aborted" in text
    assert "not installed: backend onnxrt" in text


def test_what_was_tried_on_the_best_cell_stands_before_what_is_missing() -> None:
    titles = [
        part.title for part in shown(Section(title="Correctness", blocks=("equal",))).sections
    ]

    assert titles[-2:] == ["Correctness", "Not measured"]


def test_each_printer_has_the_verdict_and_the_line_to_write() -> None:
    page = shown()

    for text in (printers.html(page), printers.markdown(page), printers.text(page)):
        assert "Use default for 1,000,000 executions" in text
        assert "step = torch.compile(step)" in text


def test_the_texts_of_a_workload_are_only_texts() -> None:
    found = sweep(*CELLS)
    hostile = msgspec.structs.replace(found.question, workload="<script>x</script>")

    page = printers.html(sheet(weighed(msgspec.structs.replace(found, question=hostile), 10)))

    assert "<script>x" not in page
