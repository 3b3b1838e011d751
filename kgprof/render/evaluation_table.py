"""What an evaluation came to: the outcomes of its work, its metrics, its settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kgprof import model as m
from kgprof.render import summary
from kgprof.render.limits import Limits, run_name
from kgprof.render.quantity import count
from kgprof.render.visible import one_line


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    name: str
    value: str
    missing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A plain table: the first column names the row."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


_COLUMNS = 16  # of metrics, and of what tells them apart


def _evaluated(runs: Sequence[m.RunReport]) -> list[tuple[m.RunReport, m.Evaluation]]:
    return [(run, run.evaluation) for run in runs if isinstance(run.evaluation, m.Evaluation)]


def outcomes(runs: Sequence[m.RunReport], limits: Limits) -> Table:
    """Every tally of every run; what was left out, and what is wrong, behind the number of steps."""
    evaluated = [(run, found) for run, found in _evaluated(runs) if found.units or found.tallies]
    last = (m.TallyKind.DROPPED, m.TallyKind.FAULT)
    tallies = {tally.name: tally for _, evaluation in evaluated for tally in evaluation.tallies}
    first, behind = ([t for t in tallies.values() if (t.kind in last) is wanted] for wanted in (False, True))
    rows = []
    for run, evaluation in evaluated:
        counts = {tally.name: tally.count for tally in evaluation.tallies}
        numbers = (
            evaluation.units,
            *(counts.get(tally.name, 0) for tally in first),
            evaluation.steps,
            *(counts.get(tally.name, 0) for tally in behind),
        )
        rows.append((run_name(run, limits), *(count(number) for number in numbers)))
    words = [[one_line(tally.heading or tally.name, limits.name) for tally in side] for side in (first, behind)]
    units = one_line(evaluated[0][0].unit.plural, limits.name) if evaluated else ""
    return Table(headings=("run", units, *words[0], "steps", *words[1]), rows=tuple(rows))


def metrics(runs: Sequence[m.RunReport], limits: Limits) -> Table:
    """One row for each group of metrics; runs with the same figures share their rows."""
    evaluations = [(run, evaluation.metrics[: 10 * limits.lines]) for run, evaluation in _evaluated(runs)]
    every = [metric for _, metrics in evaluations for metric in metrics]
    labels = list(dict.fromkeys(metric.label for metric in every))[:_COLUMNS]
    keys = list(dict.fromkeys(key for metric in every for key in metric.group))[:_COLUMNS]
    averaged = next((metric.over_what for metric in every if metric.over), "")
    by_figures: dict[tuple[tuple[str, ...], ...], list[str]] = {}
    for run, metrics in evaluations:
        grouped: dict[tuple[str, ...], dict[str, m.Metric]] = {}
        for metric in metrics:
            grouped.setdefault(tuple(metric.group.get(key, "") for key in keys), {})[metric.label] = metric
        figures = tuple(
            (
                *(one_line(part, limits.name) for part in group),
                *((count(max(metric.over for metric in row.values())),) if averaged else ()),
                *(summary.metric_value(row[label]) if label in row else "" for label in labels),
            )
            for group, row in list(grouped.items())[: limits.lines]
        )
        if figures:
            by_figures.setdefault(figures, []).append(run_name(run, limits))
    rows = [(_listed(names), *figures) for rows, names in by_figures.items() for figures in rows]
    headings = ("runs", *keys, *((averaged,) if averaged else ()), *labels)
    return Table(headings=tuple(one_line(heading, limits.name) for heading in headings), rows=tuple(rows))


def metrics_notes(runs: Sequence[m.RunReport], limits: Limits) -> tuple[str, ...]:
    """How to read them, as the workload says it."""
    notes = dict.fromkeys(evaluation.metrics_note for _, evaluation in _evaluated(runs) if evaluation.metrics_note)
    return tuple(one_line(note, 2 * limits.name) for note in notes)[: limits.lines]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) < 4 else f"{names[0]} and {len(names) - 1} others with the same figures"


def settings(runs: Sequence[m.RunReport], limits: Limits) -> tuple[Fact, ...]:
    """Once where all runs agree, else each value with its runs."""
    values: dict[str, dict[str, list[str]]] = {}
    evaluated = _evaluated(runs)
    for run, evaluation in evaluated:
        for name, value in evaluation.settings.items():
            values.setdefault(name, {}).setdefault(value, []).append(run_name(run, limits))
    facts = []
    for name, by_value in list(values.items())[: limits.lines]:
        if len(by_value) == 1:
            said = next(iter(by_value))
        else:
            said = "; ".join(f"{value} ({', '.join(names)})" for value, names in by_value.items())
        facts.append(Fact(name=one_line(name, limits.name), value=one_line(said, 2 * limits.name)))
    return tuple(facts)
