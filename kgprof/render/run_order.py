"""In which order a reader needs the runs: what the page keeps of them longest when bytes are short."""

from __future__ import annotations

from collections.abc import Sequence

from kgprof import model as m
from kgprof.measures.ranked import ranked


def importance(runs: Sequence[m.RunReport]) -> tuple[int, ...]:
    """Indices of the runs in the order in which a reader needs their details: the winner, the baseline, the runner-up,
    then the others. Where nothing ranks them the one with the shortest step leads."""
    found = ranked(runs)
    fastest = [run.key for run, _ in found.runs] if found else []
    base = [run.key for run in runs if run.is_baseline]
    steps = sorted((run.step.median, at) for at, run in enumerate(runs) if isinstance(run.step, m.Spread))
    keys = [*fastest[:1], *([] if fastest else [runs[at].key for _, at in steps[:1]]), *base, *fastest]
    at = {run.key: index for index, run in reversed(list(enumerate(runs)))}
    return tuple(dict.fromkeys([*(at[key] for key in keys), *range(len(runs))]))


def kept(runs: Sequence[m.RunReport], most: int) -> frozenset[int]:
    """Indices of the ``most`` important ones."""
    return frozenset(importance(runs)[:most])
