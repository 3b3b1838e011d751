"""Collectives on the device, told by the names that NCCL and RCCL give their kernels."""

from __future__ import annotations

from kgprof.analysis import timeline
from kgprof.analysis.kineto import Columns
from kgprof.analysis.launches import Launched
from kgprof.analysis.timeline import Window
from kgprof.model import Communication

PREFIXES = ("nccl", "rccl")  # ncclDevKernel_AllReduce_Sum_f32_RING_LL(...), ncclKernel_...


def communication(columns: Columns, launched: Launched, window: Window) -> Communication:
    """All of it in the window; a trace of one rank alone usually has none."""
    talks = columns.named(*PREFIXES)[launched.events]
    every = window.clip(timeline.intervals_of(columns, launched.events))
    own, others = timeline.union_ns(every[talks]), timeline.union_ns(every[~talks])
    return Communication(
        count=int(talks.sum()),
        total_us=int(columns.duration_ns[launched.events][talks].sum()) / 1000,
        busy_us=own / 1000,
        exposed_us=(timeline.union_ns(every) - others) / 1000,
    )
