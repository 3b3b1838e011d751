"""Budgets: ``METRIC=N`` for every run, or for the runs of one strategy or one strategy.mode."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kgprof import model as m
from kgprof.gate.metrics import BY_NAME, FRACTIONAL, METRICS, count, counts
from kgprof.wording import nearest

OPTION, DEFAULT = "--max", "default"
DEFAULTS = tuple(
    m.Budget(metric=metric.name, limit=metric.default, scope="", origin=DEFAULT)
    for metric in METRICS
    if metric.default is not None
)


def parse_option(text: str, faults: list[str]) -> m.Budget | None:
    """``[strategy[.mode]:]METRIC=N``; what is wrong goes to ``faults``."""
    name, equals, value = text.rpartition("=")
    scope, _, metric = name.rpartition(":")
    if not equals:
        faults.append(f"{OPTION} {text}: a budget must be METRIC=N, or strategy.mode:METRIC=N for some runs only")
        return None
    try:
        limit: object = float(value)
    except ValueError:
        limit = value
    return _budget(metric, limit, scope, OPTION, f"{OPTION} {text}", faults)


def parse_table(table: object, origin: str, faults: list[str]) -> list[m.Budget]:
    """``[max]`` of a configuration file: metric = number, or a table of these under a strategy or strategy.mode."""
    if not isinstance(table, dict):
        faults.append(f"{origin}: max must be a table, max = {{graph-breaks = 0}}")
        return []
    budgets: list[m.Budget | None] = []
    for name, value in table.items():
        if isinstance(value, Mapping):
            each = ((metric, limit, f"{origin}: max.{name}.{metric}") for metric, limit in value.items())
            budgets += [_budget(metric, limit, name, origin, place, faults) for metric, limit, place in each]
        else:
            budgets.append(_budget(name, value, "", origin, f"{origin}: max.{name}", faults))
    return [budget for budget in budgets if budget is not None]


def _budget(name: str, value: object, scope: str, origin: str, place: str, faults: list[str]) -> m.Budget | None:
    metric = BY_NAME.get(name)
    if metric is None:
        faults.append(f"{place}: no metric {name!r}{nearest(name, BY_NAME)}")
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        faults.append(f"{place}: a limit must be 0 or more, got {value!r}")
        return None
    if metric.unit not in FRACTIONAL and value != int(value):
        faults.append(f"{place}: {metric.name} are counted, so the limit must be a whole number, got {value!r}")
        return None
    return m.Budget(metric=name, limit=float(value), scope=scope, origin=origin)


def applies(budget: m.Budget, run: m.RunKey) -> bool:
    return budget.scope in ("", run.strategy, run.slug)


def in_force(budgets: Sequence[m.Budget], run: m.RunKey) -> list[m.Budget]:
    """One budget a metric, in the metrics' order: the narrowest scope wins; of the same scope, the command line over
    the file over the default."""

    def precedence(budget: m.Budget) -> tuple[int, int]:
        narrow = 2 if budget.scope == run.slug else 1 if budget.scope else 0
        return narrow, {OPTION: 2, DEFAULT: 0}.get(budget.origin, 1)

    chosen = {budget.metric: budget for budget in sorted(budgets, key=precedence) if applies(budget, run)}
    return [chosen[metric.name] for metric in METRICS if metric.name in chosen]


def check(
    budgets: Sequence[m.Budget], profile: m.Profile, counted: Sequence[m.Finding], accepted: Sequence[m.Finding]
) -> tuple[m.BudgetCheck, ...]:
    """Each metric that has a budget, on each run that it applies to."""
    checks = []
    for run in profile.runs:
        for budget in in_force(budgets, run.key):
            metric = BY_NAME[budget.metric]
            observed = count(metric, run, counted, profile, limit=budget.limit)
            if isinstance(observed, m.Skipped):
                status = m.BudgetStatus.NOT_OBSERVED
            else:
                status = m.BudgetStatus.EXCEEDED if observed > budget.limit else m.BudgetStatus.HELD
            held = m.BudgetCheck(
                metric=metric.name,
                run=run.key,
                limit=budget.limit,
                unit=metric.unit,
                observed=observed,
                accepted=sum(finding.run == run.key and counts(metric, finding) for finding in accepted),
                origin=budget.origin,
                status=status,
            )
            checks.append(held)
    return tuple(checks)
