"""What an evaluation came to: the classes of its candidates, its ranking metrics, its settings."""

from __future__ import annotations

from collections.abc import Sequence

from kgprof import model as m
from kgprof.render.limits import Limits
from kgprof.render.quantity import count, fixed
from kgprof.render.table import Fact, Table, plain

_CLASS_HEADINGS = (
    "run",
    "candidates",
    "proved",
    "of these in > 2 steps",
    "failed",
    "depth-truncated",
    "overflow",
    "unfinished",
    "invalid (padding)",
    "steps",
    "atoms dropped",
    "children dropped",
    "facts dropped",
    "rules dropped",
    "NaN scores",
)


def _evaluated(runs: Sequence[m.RunReport]) -> list[tuple[m.RunReport, m.Evaluation]]:
    return [(run, run.evaluation) for run in runs if isinstance(run.evaluation, m.Evaluation)]


def classes(runs: Sequence[m.RunReport]) -> Table:
    rows = []
    for run, evaluation in _evaluated(runs):
        dropped = evaluation.dropped
        numbers = (
            evaluation.candidates,
            evaluation.proved,
            evaluation.deep,
            evaluation.failed,
            evaluation.depth_truncated,
            evaluation.overflow,
            evaluation.unfinished,
            evaluation.invalid,
            evaluation.steps,
            dropped.atoms,
            dropped.children,
            dropped.facts,
            dropped.rules,
            evaluation.nan_scores,
        )
        rows.append((run.key.slug, *(count(number) for number in numbers)))
    return plain("Classes of candidates per run", _CLASS_HEADINGS, rows)


def metrics(runs: Sequence[m.RunReport], limits: Limits) -> Table:
    """Every side under every tie rule; runs with the same figures share their rows."""
    by_figures: dict[tuple[tuple[str, ...], ...], list[str]] = {}
    for run, evaluation in _evaluated(runs):
        figures = tuple(
            (
                metric.side,
                metric.ties,
                count(metric.queries),
                fixed(metric.mrr, 4),
                fixed(metric.hits_at_1, 4),
                fixed(metric.hits_at_3, 4),
                fixed(metric.hits_at_10, 4),
            )
            for metric in evaluation.metrics[: limits.lines]
        )
        by_figures.setdefault(figures, []).append(run.key.slug)
    rows = [(_listed(names), *figures) for rows, names in by_figures.items() for figures in rows]
    headings = ("runs", "side", "ties", "ranks", "MRR", "Hits@1", "Hits@3", "Hits@10")
    return plain("Ranking metrics", headings, rows)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) < 4 else f"{names[0]} and {len(names) - 1} others with the same figures"


def settings(runs: Sequence[m.RunReport], limits: Limits) -> tuple[Fact, ...]:
    """Once where all runs agree, else each value with its runs."""
    values: dict[str, dict[str, list[str]]] = {}
    evaluated = _evaluated(runs)
    for run, evaluation in evaluated:
        for name, value in evaluation.settings.items():
            values.setdefault(name, {}).setdefault(value, []).append(run.key.slug)
    facts = []
    for name, by_value in list(values.items())[: limits.lines]:
        if len(by_value) == 1:
            said = next(iter(by_value))
        else:
            said = "; ".join(f"{value} ({', '.join(names)})" for value, names in by_value.items())
        facts.append(Fact(name=name, value=said))
    return tuple(facts)
