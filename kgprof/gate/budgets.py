"""Budgets: ``METRIC=N`` for every run, or for the runs of one strategy or one strategy.mode."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kgprof import model as m
from kgprof.gate.metrics import BY_NAME, FRACTIONAL, METRICS, Metric, count, counts
from kgprof.wording import nearest

OPTION, DEFAULT = "--max", "default"
HELD, EXCEEDED, NOT_OBSERVED = "held", "exceeded", "not observed"


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """``scope``: "" for every run, else "strategy" or "strategy.mode". ``origin``: where it was written."""

    metric: Metric
    limit: float
    scope: str = ""
    origin: str = OPTION

    def applies_to(self, run: m.RunKey) -> bool:
        return self.scope in ("", run.strategy, run.slug)

    def precedence(self, run: m.RunKey) -> tuple[int, int]:
        """The narrower scope wins; of the same scope, the command line over the file over the default."""
        narrow = 2 if self.scope == run.slug else 1 if self.scope else 0
        return narrow, {OPTION: 2, DEFAULT: 0}.get(self.origin, 1)


DEFAULTS = tuple(
    Budget(metric=metric, limit=metric.default, origin=DEFAULT) for metric in METRICS if metric.default is not None
)


# ---------------------------------------------------------------- reading them


def parse_option(text: str, faults: list[str]) -> Budget | None:
    """``[strategy[.mode]:]METRIC=N``; what is wrong goes to ``faults``."""
    name, equals, value = text.rpartition("=")
    scope, _, metric = name.rpartition(":")
    if not equals:
        faults.append(f"{OPTION} {text}: a budget is METRIC=N, or strategy.mode:METRIC=N for some runs only")
        return None
    return _budget(metric, _number(value), scope, OPTION, f"{OPTION} {text}", faults)


def parse_table(table: object, origin: str, faults: list[str]) -> list[Budget]:
    """``[max]`` of a configuration file: metric = number, or a table of these under a strategy or strategy.mode."""
    if not isinstance(table, dict):
        faults.append(f"{origin}: max must be a table, max = {{graph-breaks = 0}}")
        return []
    budgets: list[Budget | None] = []
    for name, value in table.items():
        if isinstance(value, Mapping):
            budgets += [
                _budget(metric, limit, name, origin, f"{origin}: max.{name}.{metric}", faults)
                for metric, limit in value.items()
            ]
        else:
            budgets.append(_budget(name, value, "", origin, f"{origin}: max.{name}", faults))
    return [budget for budget in budgets if budget is not None]


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _budget(name: str, value: object, scope: str, origin: str, place: str, faults: list[str]) -> Budget | None:
    metric = BY_NAME.get(name)
    if metric is None:
        faults.append(f"{place}: no metric {name!r}{nearest(name, BY_NAME)}")
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        faults.append(f"{place}: a limit is a number from 0 on, not {value!r}")
        return None
    if metric.unit not in FRACTIONAL and value != int(value):
        faults.append(f"{place}: {metric.name} are counted, so the limit is a whole number, not {value!r}")
        return None
    return Budget(metric=metric, limit=float(value), scope=scope, origin=origin)


# ---------------------------------------------------------------- checking them


def check(
    budgets: Sequence[Budget], profile: m.Profile, counted: Sequence[m.Finding], accepted: Sequence[m.Finding]
) -> tuple[m.BudgetCheck, ...]:
    """Each metric that has a budget, on each run that it applies to."""
    return tuple(
        _checked(budget, run, profile, counted, accepted)
        for run in profile.runs
        for budget in in_force(budgets, run.key)
    )


def in_force(budgets: Sequence[Budget], run: m.RunKey) -> list[Budget]:
    """One budget a metric, in the metrics' order."""
    chosen: dict[str, Budget] = {}
    for budget in sorted((b for b in budgets if b.applies_to(run)), key=lambda b: b.precedence(run)):
        chosen[budget.metric.name] = budget
    return [chosen[metric.name] for metric in METRICS if metric.name in chosen]


def _checked(
    budget: Budget, run: m.RunReport, profile: m.Profile, counted: Sequence[m.Finding], accepted: Sequence[m.Finding]
) -> m.BudgetCheck:
    metric = budget.metric
    observed = count(metric, run, counted, profile, limit=budget.limit)
    over = not isinstance(observed, m.Skipped) and observed > budget.limit
    return m.BudgetCheck(
        metric=metric.name,
        run=run.key,
        limit=budget.limit,
        unit=metric.unit,
        observed=observed,
        accepted=sum(finding.run == run.key and counts(metric, finding) for finding in accepted),
        origin=budget.origin,
        status=NOT_OBSERVED if isinstance(observed, m.Skipped) else EXCEEDED if over else HELD,
    )
