"""What watching cost, and which passes there were."""

from __future__ import annotations

from collections.abc import Sequence

from kgprof import model as m
from kgprof.render.quantity import DASH, ratio
from kgprof.render.table import Cell, Table, plain
from kgprof.wording import plural

_OBSERVERS: tuple[m.PassName, ...] = tuple(name for name in m.PassName if name is not m.PassName.TIMING)


def observer_table(runs: Sequence[m.RunReport]) -> Table:
    """One row a run that was watched, one column a pass."""
    seen = {cost.observer for run in runs for cost in run.observers}
    passes = tuple(name for name in _OBSERVERS if name in seen)
    rows = []
    for run in runs:
        cells = dict.fromkeys(passes, Cell(DASH, details=("no such pass",)))
        for cost in run.observers:
            if isinstance(cost.ratio, m.Skipped):
                cells[cost.observer] = Cell(DASH, details=(cost.ratio.reason,))
            else:
                cells[cost.observer] = Cell(ratio(cost.ratio), details=(plural(cost.samples, "step"),))
        if run.observers:
            rows.append((run.key.slug, *(cells[name] for name in passes)))
    return plain("Observer cost per run", ("run", *(name.upper() for name in passes)), rows)


def passes(profile: m.Profile) -> frozenset[str]:
    """Those that left steps in any run; where none did, those that were asked for."""
    seen = {cost.observer for run in profile.runs for cost in run.observers}
    if any(isinstance(time, m.Spread) for run in profile.runs for time in (run.step, run.evaluation_time)):
        seen.add(m.PassName.TIMING)
    return frozenset(name.upper() for name in seen or profile.options.passes or m.PassName)
