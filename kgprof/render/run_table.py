"""One line per run, as the page lays it out: the cells of summary.py with their bars, and how each run ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kgprof import model as m
from kgprof.render import chart, memory_table, summary
from kgprof.render.evaluation_table import Fact
from kgprof.render.limits import Limits, anchor
from kgprof.render.visible import one_line

_LINE = 16  # characters; a longer detail may be wrapped


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    name: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCell:
    text: str
    details: tuple[str, ...]
    measured: bool
    sort: str
    wrong: bool
    bar: str = ""  # width of the bar under the figure, "37.500%"

    @property
    def long(self) -> tuple[str, ...]:
        """Details that are words and may be wrapped; a figure and its range may not."""
        return tuple(detail for detail in self.details if len(detail) > _LINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingFigure:
    what: str
    reason: str
    runs: tuple[str, ...]  # empty: none has it


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLine:
    anchor: str
    strategy: str
    mode: str
    baseline: bool
    ended: str
    notes: tuple[str, ...]
    cells: tuple[RunCell, ...]

    @property
    def name(self) -> str:
        return f"{self.strategy}.{self.mode}"


def headings(columns: Sequence[summary.Column]) -> tuple[Heading, ...]:
    """A workload names its unit and its metrics, so these are cut as every name is."""
    return tuple(Heading(name=one_line(column.name, 60), title=one_line(column.title, 200)) for column in columns)


def run_lines(runs: Sequence[m.RunReport], columns: Sequence[summary.Column], limits: Limits) -> tuple[RunLine, ...]:
    scales = {
        column.name: _largest(column, runs)
        for column in columns
        if column.key in ("step", "unit", "evaluation") and len(runs) > 1
    }
    return tuple(
        RunLine(
            anchor=anchor(index),
            strategy=one_line(run.key.strategy, limits.name // 4),
            mode=one_line(run.key.mode, limits.name // 4),
            baseline=run.is_baseline,
            ended=one_line(summary.ended(run), 2 * limits.name),
            notes=tuple(one_line(note, limits.name) for note in (*_counted(run), *run.notes[: limits.lines])),
            cells=tuple(_run_cell(column.cell(run), scales.get(column.name, 0.0), limits) for column in columns),
        )
        for index, run in enumerate(runs)
    )


def _counted(run: m.RunReport) -> tuple[str, ...]:
    """What a script's run counted as a step."""
    if run.script is None or not run.script.step:
        return ()
    return (f"a step is {run.script.step}; {run.script.steps:,} counted",)


def missing_figures(runs: Sequence[m.RunReport], limits: Limits) -> tuple[MissingFigure, ...]:
    """Of the table of memory, said below it: a dash alone is read by nobody who cannot hover."""
    return tuple(
        MissingFigure(
            what=", ".join(names),
            reason=one_line(reason, limits.name),
            runs=tuple(one_line(run, limits.name // 2) for run in slugs[: limits.lines]),
        )
        for reason, names, slugs in memory_table.reasons(runs)[: limits.lines]
    )


def strategies(profile: m.Profile, limits: Limits) -> tuple[Fact, ...]:
    """What each strategy that ran computes differently, in the workload's own words."""
    ran = {run.key.strategy for run in profile.runs}
    told = [strategy for strategy in profile.strategies if strategy.name in ran and strategy.summary]
    return tuple(
        Fact(name=one_line(strategy.name, limits.name), value=one_line(strategy.summary, 2 * limits.name))
        for strategy in told[: limits.lines]
    )


def _largest(column: summary.Column, runs: Sequence[m.RunReport]) -> float:
    return max((cell.value or 0.0 for run in runs if (cell := column.cell(run)).measured), default=0.0)


def _in_lines(details: Sequence[str]) -> tuple[str, ...]:
    """Short ones share a line: the table has to stand above the fold, and no column may grow for it."""
    lines: list[str] = []
    for detail in details:
        if lines and len(lines[-1]) + len(detail) + 2 <= _LINE:
            lines[-1] += f", {detail}"
        else:
            lines.append(detail)
    return tuple(lines)


def _run_cell(cell: summary.Cell, scale: float, limits: Limits) -> RunCell:
    return RunCell(
        text=one_line(cell.text, limits.name),
        details=tuple(one_line(detail, limits.name) for detail in _in_lines(cell.details)),
        measured=cell.measured,
        sort="" if cell.value is None else repr(cell.value),
        wrong=cell.wrong,
        bar=chart.of_width(cell.value / scale) if scale and cell.value is not None else "",
    )
