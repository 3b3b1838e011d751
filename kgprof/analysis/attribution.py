"""Device time by what the host had asked for it in: the step, the compiled region, the user's own span."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kgprof.analysis import launches
from kgprof.analysis.kineto import Columns
from kgprof.analysis.launches import Indices, Mask
from kgprof.analysis.timeline import NOBODY, STEP_PREFIX
from kgprof.model import SpanTotal

REGION_PREFIX = "Torch-Compiled Region: "  # and the compile id
GENERATED_CODE_PREFIX = "## Call CompiledFxGraph "  # Inductor's, an annotation where shapes are recorded
UNATTRIBUTED = "(unattributed)"


def by_step(columns: Columns) -> tuple[SpanTotal, ...]:
    """Device time of each ProfilerStep that launched it, in their order."""
    return _totals(columns, columns.named(STEP_PREFIX) & columns.of_category("user_annotation", "cpu_op"))


def by_region(columns: Columns) -> tuple[SpanTotal, ...]:
    """Device time of each compiled region, under its compile id ("0/1"); a graph's replay counts for its region."""
    found = _totals(columns, columns.named(REGION_PREFIX))
    return tuple(
        SpanTotal(span=total.span.removeprefix(REGION_PREFIX), count=total.count, total_us=total.total_us)
        for total in found
    )


def by_span(columns: Columns) -> tuple[SpanTotal, ...]:
    """Device time of each ``record_function`` of the user's, the innermost one at the launch."""
    torchs_own = columns.named(STEP_PREFIX, GENERATED_CODE_PREFIX, REGION_PREFIX)
    return _totals(columns, columns.of_category("user_annotation") & ~torchs_own)


def _totals(columns: Columns, spans: Mask) -> tuple[SpanTotal, ...]:
    """By the spans' names in the order of their first launch, and what stands in none of them last, always."""
    events = np.flatnonzero(columns.of_category(*launches.DEVICE_CATEGORIES))
    span = launches.innermost(columns, spans, launches.launched_by(columns, events))
    names = np.where(span == NOBODY, NOBODY, columns.name[span])
    different, first = np.unique(names, return_index=True)
    ordered = [name for _, name in sorted(zip(first.tolist(), different.tolist(), strict=True)) if name != NOBODY]
    return (
        *(_total(columns.names[name], columns, events[names == name]) for name in ordered),
        _total(UNATTRIBUTED, columns, events[names == NOBODY]),
    )


def _total(span: str, columns: Columns, events: Indices) -> SpanTotal:
    durations: npt.NDArray[np.int64] = columns.duration_ns[events]
    return SpanTotal(span=span, count=len(events), total_us=int(durations.sum()) / 1000)
