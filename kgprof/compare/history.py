"""More than two Profiles of one workload, in order: each metric of each against the first one and the one before."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from kgprof import model as m
from kgprof._version import __version__
from kgprof.compare import CompareSettings, compare


def history(profiles: Sequence[m.Profile], settings: CompareSettings, sources: Sequence[str]) -> m.History:
    """Raises UsageError for a comparison among them, and for two workloads."""
    sides = list(zip(profiles, sources, strict=True))
    first = [_compared(sides[0], side, settings) for side in sides[1:]]
    previous = [_compared(before, after, settings) for before, after in pairwise(sides)]
    by_first, by_previous = ([_metrics(each) for each in compared] for compared in (first, previous))
    metrics = []
    for run, name in dict.fromkeys(key for each in (*by_first, *by_previous) for key in each):
        found = [each.get((run, name)) for each in by_first]
        steps = [each.get((run, name)) for each in by_previous]
        absent = m.Skipped(reason="the run is not in this recording or its neighbours")
        values: list[float | m.Skipped] = []
        for at in range(len(sides)):
            ends = (
                [(found[at - 1], True), (steps[at - 1], True)] if at else [(one, False) for one in (*found, steps[0])]
            )
            ends += [(steps[at], False)] if at < len(steps) else []
            here = (one.head if is_head else one.base for one, is_head in ends if one is not None)
            values.append(next(here, absent))
        metrics.append(
            m.MetricHistory(
                run=run, name=name, values=tuple(values), against_first=tuple(found), against_previous=tuple(steps)
            )
        )
    return m.History(
        schema_version=m.HISTORY_SCHEMA_VERSION,
        kgprof_version=__version__,
        workload=profiles[-1].workload,
        environment=profiles[-1].environment,
        recordings=(first[0].base, *(each.head for each in first)),
        metrics=tuple(metrics),
        environments_differ=tuple(
            f"{change.name} {change.base} -> {change.head} at recording {number}"
            for number, each in enumerate(previous, start=2)
            for change in each.environment
        ),
    )


def _compared(base: tuple[m.Profile, str], head: tuple[m.Profile, str], settings: CompareSettings) -> m.Comparison:
    found = compare(base[0], head[0], settings, sources=(base[1], head[1])).comparison
    assert found is not None
    return found


def _metrics(compared: m.Comparison) -> dict[tuple[m.RunKey, str], m.ComparedMetric]:
    return {(metric.run, metric.name): metric for run in compared.runs for metric in run.metrics}
