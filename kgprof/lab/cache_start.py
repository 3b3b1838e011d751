"""The first call on another machine: in fresh processes with empty caches, without and with the
artefacts of the first.

``torch.compiler.save_cache_artifacts`` packs what a process put into the compilers' caches; a
process that loads it finds its graphs there and still has Dynamo capture them.
"""

import time
from dataclasses import replace
from pathlib import Path

import msgspec

from kgprof import model as m
from kgprof.errors import WorkloadError
from kgprof.record.processes import trials
from kgprof.workloads import programs

STARTS = "kgprof.lab.cache_start:measured_start"


def shipped_cache(of: trials.CellTrials) -> m.ShippedCache | m.Skipped:
    """Two children, each with cold caches of its own.

    Raises OSError where ``scratch`` cannot be written, KeyboardInterrupt where a signal came.
    """
    cell = of.cell
    options = of.options
    if programs.is_program(options.workload):
        return m.Skipped(
            "a script has no first call to time; name one of its functions: file.py:name"
        )
    if cell != m.Cell(cell.mode, size=cell.size):
        return m.Skipped(
            "only Inductor with the program's own shapes and precision can be tried, not "
            f"{cell.name}"
        )
    artifacts = of.scratch / "artifacts.bin"
    starts = []
    key = m.RunKey(of.strategy, cell.mode)
    options = msgspec.structs.replace(options, workload_args=(*options.workload_args, *cell.size))
    for name in ("packs", "unpacks"):
        asked = m.StartQuestion(key, of.device, str(artifacts), load=name == "unpacks")
        own = replace(of.caches, folder=of.scratch / f"caches-{name}", kept=False)
        trial = trials.run(
            STARTS, asked, options=options, scratch=of.scratch, caches=own, until=of.until
        )
        if trial.interrupted:
            raise KeyboardInterrupt
        if trial.exit.outcome is not m.Outcome.OK or trial.answer is None:
            ended = m.Skipped(f"the process that {name} the caches {trial.exit.words}")
            return trials.TIME_UP if trial.time_up else ended
        starts.append(m.decode_json(trial.answer, m.Start))
        if not artifacts.exists():
            return m.Skipped("torch packed nothing: no graph of this run is cacheable")
    return m.ShippedCache(
        cell=cell.name, cold=starts[0], loaded=starts[1], artifact_bytes=artifacts.stat().st_size
    )


def measured_start(question: bytes, options: m.Options, write: trials.Write) -> None:
    """The child: one first call, timed, after loading the artefacts or before packing them."""
    import torch

    from kgprof.record.ground.run import seed_everything
    from kgprof.record.passes import timing
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
    counted = timing.dynamo_counters("inductor")
    write(
        m.Start(
            first_call_s,
            load_s,
            graphs_from_cache=counted.get(timing.HIT, 0),
            graphs_compiled=counted.get(timing.MISS, 0) + counted.get(timing.BYPASS, 0),
        )
    )
