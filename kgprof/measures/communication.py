"""Collectives on the device, told by the names of their kernels."""

from __future__ import annotations

from kgprof import model as m
from kgprof.measures.kernel_kinds import Kinds
from kgprof.reading import timeline
from kgprof.reading.kineto import Columns
from kgprof.reading.launches import Launched
from kgprof.reading.timeline import Window


def communication(columns: Columns, launched: Launched, window: Window, kinds: Kinds) -> m.Communication:
    """All of it in the window; a trace of one rank alone usually has none."""
    kernel = columns.of_category("kernel")[launched.events]
    talks = kernel & kinds.are(columns, launched.events, m.KernelKind.COMMUNICATION)
    every = window.clip(timeline.intervals_of(columns, launched.events))
    own, others = timeline.union_ns(every[talks]), timeline.union_ns(every[~talks])
    return m.Communication(
        count=int(talks.sum()),
        total_us=int(columns.duration_ns[launched.events][talks].sum()) / 1000,
        busy_us=own / 1000,
        exposed_us=(timeline.union_ns(every) - others) / 1000,
    )
