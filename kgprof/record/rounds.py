"""One more round of TIMING, in a process of its own: intervals are over rounds, not over the steps of one process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager

import torch

from kgprof import model as m
from kgprof.record import timing
from kgprof.workloads.protocol import Session

# Keys of torch._dynamo.utils.counters["inductor"], as torch 2.11 to 2.13 count (torch/_inductor/codecache.py).
HIT, MISS, BYPASS = "fxgraph_cache_hit", "fxgraph_cache_miss", "fxgraph_cache_bypass"

Phase = Callable[[str], AbstractContextManager[None]]


def timed_round(session: Session, device: torch.device, options: m.Options, phase: Phase) -> m.TimedRound:
    """The first call on warm caches, the further calls that COMPILE makes, then TIMING as in the first round."""
    with phase("first call"):
        before_steady = min(max(1, options.warmup), options.steps)
        warm_up_s = tuple(timing.wall_us(session.step, device) / 1e6 for _ in range(before_steady))
        for _ in range(options.steps - before_steady):
            session.step()
        timing.synchronize(device)
    with phase("timing"):
        timed, _ = timing.timing_pass(session, device, options)
    from_cache, compiled = _graphs()
    return m.TimedRound(
        first_call_s=warm_up_s[0],
        graphs_from_cache=from_cache,
        graphs_compiled=compiled,
        timing=timed,
        warm_up_s=warm_up_s,
    )


def _graphs() -> tuple[int, int] | tuple[m.Skipped, m.Skipped]:
    """Inductor's graphs in this process that came from a cache, and those that it had to compile."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    counters = getattr(dynamo, "counters", None)
    if counters is None:
        absent = m.Skipped(reason="nothing was compiled" if dynamo is None else "this torch counts no cache hits")
        return absent, absent
    counted = counters["inductor"]
    return counted[HIT], counted[MISS] + counted[BYPASS]
