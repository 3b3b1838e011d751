"""One row a run: the figures of summary.py or memory_table.py, and how each run ended."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from kgprof import model as m
from kgprof.render import summary
from kgprof.render.limits import anchor
from kgprof.render.table import Cell, Column, Fact, Row, Small, Table


def run_table(
    runs: Sequence[m.RunReport], shown: Sequence[summary.RunColumn], label: str, *, anchored: bool = False
) -> Table:
    """``anchored``: links to a run lead to this table, and it says how a run ended."""
    figures = []
    for column in shown:
        cells = [column.cell(run) for run in runs]
        scale = max((cell.value or 0.0 for cell in cells if cell.measured), default=0.0)
        if column.bar and scale and len(runs) > 1:
            cells = [cell if cell.value is None else replace(cell, bar=cell.value / scale) for cell in cells]
        figures.append(cells)
    rows = []
    for index, run in enumerate(runs):
        ended = summary.ended(run) if anchored else ""
        tags = (Small((run.key.mode,), "mode"), *((Small(("baseline",), "tag"),) if run.is_baseline else ()))
        head = Cell(run.key.strategy, name=run.key.slug, below=tags, details=(ended,) if ended else ())
        rows.append(
            Row(
                cells=(head, *(cells[index] for cells in figures)),
                anchor=anchor(index) if anchored else "",
                style="dead" if ended else "",
            )
        )
    return Table(
        label=label,
        columns=(
            Column("run", style="strategy"),
            *(Column(column.name, title=column.title, details=column.details) for column in shown),
        ),
        rows=tuple(rows),
        style="results sortable",
    )


def without_constants(table: Table) -> tuple[Table, str]:
    """Columns in which all of several runs have the same go into one line: "finished 7,040/7,040 (in 188 steps)"."""
    if len(table.rows) < 2:
        return table, ""
    constant = []
    for at, column in enumerate(table.columns[1:], start=1):
        shown = {(cell.text, cell.details, cell.measured, cell.wrong) for cell in (row.cells[at] for row in table.rows)}
        if len(shown) == 1 and (cell := table.rows[0].cells[at]).measured and not cell.wrong and not cell.bar:
            details = f" ({', '.join(cell.details)})" if cell.details else ""
            constant.append((column.name, f"{column.name} {cell.text}{details}"))
    if not constant:
        return table, ""
    gone = {name for name, _ in constant}
    names = [column.name for column in table.columns if column.name not in gone]
    return table.only(*names), f"Same in all {len(table.rows)} runs: {'; '.join(words for _, words in constant)}."


def run_notes(runs: Sequence[m.RunReport]) -> tuple[tuple[str, str], ...]:
    return tuple((run.key.slug, note) for run in runs for note in run.notes)


def strategies(profile: m.Profile) -> tuple[Fact, ...]:
    """What each strategy that ran computes differently, in the workload's own words."""
    ran = {run.key.strategy for run in profile.runs}
    return tuple(
        Fact(name=strategy.name, value=strategy.summary)
        for strategy in profile.strategies
        if strategy.name in ran and strategy.summary
    )
