"""What an evaluation came to: the outcomes of its work, its metrics, its settings."""

from __future__ import annotations

from collections.abc import Sequence

from kgprof import model as m
from kgprof.render import summary
from kgprof.render.limits import Limits
from kgprof.render.quantity import count
from kgprof.render.table import Fact, Facts, Fold, Table, plain

_COLUMNS = 16  # of metrics, and of what tells them apart


def evaluation_folds(units: str, runs: Sequence[m.RunReport], limits: Limits) -> tuple[Fold, ...]:
    """What became of the units of work, every metric, and the settings; of these what the workload declares."""
    tallied, measured, declared = outcomes(runs), metrics(runs, limits), settings(runs, limits)
    folds = []
    if tallied.rows:
        folds.append(Fold(f"Outcomes of the {units}", blocks=(tallied,)))
    if measured.rows:
        # How to read them, as the workload says it.
        notes = dict.fromkeys(evaluation.metrics_note for _, evaluation in _evaluated(runs) if evaluation.metrics_note)
        shown = tuple(notes)[: limits.lines]
        folds.append(Fold("Every metric of the evaluation", blocks=(*shown, measured)))
    if declared:
        folds.append(Fold("Settings of the evaluation", blocks=(Facts(declared),)))
    return tuple(folds)


def _evaluated(runs: Sequence[m.RunReport]) -> list[tuple[m.RunReport, m.Evaluation]]:
    return [(run, run.evaluation) for run in runs if isinstance(run.evaluation, m.Evaluation)]


def outcomes(runs: Sequence[m.RunReport]) -> Table:
    """Every tally of every run; what was left out, and what is wrong, behind the number of steps."""
    evaluated = [(run, found) for run, found in _evaluated(runs) if found.units or found.tallies]
    last = (m.TallyKind.DROPPED, m.TallyKind.FAULT)
    tallies = {tally.name: tally for _, evaluation in evaluated for tally in evaluation.tallies}
    first, behind = ([t for t in tallies.values() if (t.kind in last) is wanted] for wanted in (False, True))
    rows = []
    for run, evaluation in evaluated:
        counts = {tally.name: tally.count for tally in evaluation.tallies}
        before, after = ([counts.get(tally.name, 0) for tally in side] for side in (first, behind))
        rows.append((run.key.slug, *map(count, (evaluation.units, *before, evaluation.steps, *after))))
    words = [[tally.heading or tally.name for tally in side] for side in (first, behind)]
    units = evaluated[0][0].unit.plural if evaluated else ""
    return plain("Outcomes per run", ("run", units, *words[0], "steps", *words[1]), rows)


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
                *group,
                *((count(max(metric.over for metric in row.values())),) if averaged else ()),
                *(summary.metric_value(row[label]) if label in row else "" for label in labels),
            )
            for group, row in list(grouped.items())[: limits.lines]
        )
        if figures:
            by_figures.setdefault(figures, []).append(run.key.slug)
    rows = []
    for figures, names in by_figures.items():
        others = f"{names[0]} and {len(names) - 1} others with the same values"
        rows += [(", ".join(names) if len(names) < 4 else others, *group) for group in figures]
    headings = ("runs", *keys, *((averaged,) if averaged else ()), *labels)
    return plain("Metrics of the evaluation", headings, rows)


def settings(runs: Sequence[m.RunReport], limits: Limits) -> tuple[Fact, ...]:
    """Once where all runs agree, else each value with its runs."""
    values: dict[str, dict[str, list[str]]] = {}
    for run, evaluation in _evaluated(runs):
        for name, value in evaluation.settings.items():
            values.setdefault(name, {}).setdefault(value, []).append(run.key.slug)
    facts = []
    for name, by_value in list(values.items())[: limits.lines]:
        each = "; ".join(f"{value} ({', '.join(names)})" for value, names in by_value.items())
        facts.append(Fact(name=name, value=next(iter(by_value)) if len(by_value) == 1 else each))
    return tuple(facts)
