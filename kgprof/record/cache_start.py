"""The first call on another machine: in fresh processes with empty caches, without and with the artefacts of the first.

``torch.compiler.save_cache_artifacts`` packs what a process put into the compilers' caches; a process that loads it
finds its graphs there and still has Dynamo capture them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import torch

from kgprof import model as m
from kgprof.errors import WorkloadError
from kgprof.record import timing, trials
from kgprof.record.children import Caches
from kgprof.record.run import seed_everything

STARTS = "kgprof.record.cache_start:measured_start"


def shipped_cache(
    key: m.RunKey, device: str, options: m.Options, *, scratch: Path, caches: Caches
) -> m.ShippedCache | m.Skipped:
    """Two children, each with cold caches of its own; ``caches`` says what those begin with, Inductor's vector-ISA
    probe for one, which would else be a part of both first calls.

    Raises OSError where ``scratch`` cannot be written.
    """
    artifacts, starts = scratch / "artifacts.bin", []
    for name in ("packs", "unpacks"):
        asked = m.StartQuestion(key=key, device=device, artifacts=str(artifacts), load=name == "unpacks")
        own, timeout_s = replace(caches, folder=scratch / f"caches-{name}", kept=False), options.timeout_s
        trial = trials.run(STARTS, asked, options=options, scratch=scratch, caches=own, timeout_s=timeout_s)
        if trial.exit.outcome is not m.Outcome.OK or trial.answer is None:
            return m.Skipped(reason=f"the process that {name} the caches {trial.exit.words}")
        starts.append(m.decode_json(trial.answer, m.Start))
        if not artifacts.exists():
            return m.Skipped(reason="torch packed nothing: no graph of this run can be cached")
    return m.ShippedCache(cold=starts[0], loaded=starts[1], artifact_bytes=artifacts.stat().st_size)


def measured_start(question: bytes, options: m.Options, write: Callable[[m.Model], None]) -> None:
    """The child: one first call, timed, after loading the artefacts or before packing them."""
    from kgprof.workloads import loading

    asked = msgspec.json.decode(question, type=m.StartQuestion)
    artifacts, device, load_s = Path(asked.artifacts), torch.device(asked.device), 0.0
    seed_everything(options.seed)
    workload = loading.load(options.workload, options.workload_args, options.seed)
    session = workload.prepare(asked.key, device)
    if asked.load:
        began = time.perf_counter()
        if torch.compiler.load_cache_artifacts(artifacts.read_bytes()) is None:
            raise WorkloadError(f"torch.compiler.load_cache_artifacts could not read {artifacts}")
        load_s = time.perf_counter() - began
    first_call_s = timing.wall_us(session.step, device) / 1e6
    if not asked.load and (saved := torch.compiler.save_cache_artifacts()) is not None:
        artifacts.write_bytes(saved[0])
    counted = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {}).get("inductor", {})
    write(
        m.Start(
            first_call_s=first_call_s,
            load_s=load_s,
            graphs_from_cache=counted.get(timing.HIT, 0),
            graphs_compiled=counted.get(timing.MISS, 0) + counted.get(timing.BYPASS, 0),
        )
    )
