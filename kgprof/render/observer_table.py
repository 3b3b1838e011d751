"""What watching cost, and which passes there were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kgprof import model as m
from kgprof.render.limits import Limits, run_name
from kgprof.render.quantity import DASH, ratio
from kgprof.render.visible import one_line
from kgprof.wording import plural


@dataclass(frozen=True, slots=True, kw_only=True)
class ObserverTable:
    passes: tuple[str, ...]
    rows: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]  # run, (ratio, samples or reason) a pass


_OBSERVERS = tuple(name for name in m.PassName if name is not m.PassName.TIMING)


def observers(runs: Sequence[m.RunReport], limits: Limits) -> ObserverTable:
    seen = {cost.observer for run in runs for cost in run.observers}
    passes = tuple(name for name in _OBSERVERS if name in seen)
    rows = []
    for run in runs:
        costs = {cost.observer: cost.ratio for cost in run.observers}
        samples = {cost.observer: plural(cost.samples, "step") for cost in run.observers}
        cells = []
        for name in passes:
            cost = costs.get(name, m.Skipped(reason="no such pass"))
            if isinstance(cost, m.Skipped):
                cells.append((DASH, one_line(cost.reason, limits.name)))
            else:
                cells.append((ratio(cost), samples[name]))
        if costs:
            rows.append((run_name(run, limits), tuple(cells)))
    return ObserverTable(passes=tuple(name.upper() for name in passes), rows=tuple(rows))


def passes(profile: m.Profile) -> frozenset[str]:
    """Those that left steps in any run; where none did, those that were asked for."""
    seen = {cost.observer for run in profile.runs for cost in run.observers}
    if any(isinstance(time, m.Spread) for run in profile.runs for time in (run.step, run.evaluation_time)):
        seen.add(m.PassName.TIMING)
    return frozenset(name.upper() for name in seen or profile.options.passes or m.PassName)
