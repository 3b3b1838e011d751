"""Collectives on the device, told by the names of their kernels."""

from __future__ import annotations

import numpy as np

from kgprof.analysis import timeline
from kgprof.analysis.kernel_kinds import Kinds
from kgprof.analysis.kineto import Columns
from kgprof.analysis.launches import Launched
from kgprof.analysis.timeline import Window
from kgprof.model import Communication, KernelKind


def communication(columns: Columns, launched: Launched, window: Window, kinds: Kinds) -> Communication:
    """All of it in the window; a trace of one rank alone usually has none."""
    kernel = columns.of_category("kernel")[launched.events]
    called = columns.name[launched.events]
    collectives = [
        name
        for name in np.unique(called[kernel]).tolist()
        if kinds.of_device_event(columns.names[name], "kernel").kind is KernelKind.COMMUNICATION
    ]
    talks = kernel & np.isin(called, collectives)
    every = window.clip(timeline.intervals_of(columns, launched.events))
    own, others = timeline.union_ns(every[talks]), timeline.union_ns(every[~talks])
    return Communication(
        count=int(talks.sum()),
        total_us=int(columns.duration_ns[launched.events][talks].sum()) / 1000,
        busy_us=own / 1000,
        exposed_us=(timeline.union_ns(every) - others) / 1000,
    )
