"""Is the verdict of `kgprof sweep` the one that brute force comes to?

    mkdir -p /tmp/brute && export OMP_NUM_THREADS=1
    sweep() { kgprof sweep "$2" --executions 5000 --no-ladder --no-ci --resume -o "/tmp/brute/$1"
    "${@:3}"; }
    sweep fusion fusion -- --batch 8
    sweep sin-cos pointwise --strategy sin_cos -- --rows 512 --columns 1024
    sweep scaled-relu pointwise --strategy scaled_relu -- --rows 512 --columns 1024
    sweep small-ops small-ops
    sweep matmul-gelu matmul-gelu -- --rows 256 --inner 256 --columns 256
    sweep scorers scorers -- --batch 2
    sweep polynomial benchmarks/sweep_functions.py:polynomial
    sweep layers benchmarks/sweep_functions.py:layers
    python benchmarks/brute_force.py benchmarks/results/brute_force_cpu.json /tmp/brute/*/ --minutes
    60

Each cell of each sweep runs in --processes fresh processes with warm compiler caches, in turn over
the cells of its workload, in the other order in every second round; a process's step is the median
of its groups of steps, as in a sweep. --cold processes of each, in its first rounds, have cold
caches: the time of their first calls, less as many steady ones, is the cell's start. A cell's total
is its start plus the verdict's number of executions times its step; of a round, the round's step
with the start of the cold process in the same turn (the first of them again after the last).

The same processes say what `kgprof advise` is worth: the sweep's verdict for a tenth, ten times and
a hundred times as many executions is held to them too ("advised"), as many a start is paid back
only then.

The verdict is right if the recommended cell is the one with the smallest median total, or at most 5
% slower, or if the 95 % interval of its ratio to that one (Student's t over the rounds' log ratios)
holds 1. As in a verdict, only cells of the program's own precision count if one of them compiles.
Cells that the sweep had no time for count too; a cell that does not run here is named and left out.

A process is in the file as soon as it has ended. The same command goes on where it stopped, in as
many sittings as one likes; a sitting ends after --minutes, a process that runs then is ended and
runs again in the next one. The compiler's caches stay beside the file in FILE.caches, which can be
deleted at any time.

A machine with many cores measures several workloads at once, each on cores of its own and into a
file of its own:

    OMP_NUM_THREADS=1 taskset -c 16-17 python benchmarks/brute_force.py /tmp/brute/fusion.json
    /tmp/brute/fusion
    python benchmarks/brute_force.py benchmarks/results/brute_force_cpu.json --merge
    /tmp/brute/*.json
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import math
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from kgprof import model as m
from kgprof.judge import t_quantile
from kgprof.measures.sweep import weighed
from kgprof.record.processes import children, trials
from kgprof.workloads import loading, programs

MEASURE = "kgprof.lab.sweep_cell:measure"
OTHERS = (0.1, 10, 100)  # times the executions of the sweep
LEVEL = 1.05  # two totals closer than this are equally good
FEWEST = 3  # rounds, for a ratio's interval


def read(folder: Path) -> m.Sweep:
    file = folder / "sweep.json"
    sweep = m.decode_json(file.read_bytes(), m.Sweep)
    if programs.is_program(sweep.question.workload):
        raise SystemExit(
            f"{file} is of a script, which has no step to call; sweep one of its functions"
        )
    if len(sweep.verdicts) != 1 or sweep.verdicts[0].best is None:
        raise SystemExit(
            f"{file} must have one verdict that recommends a cell; sweep one size, with more "
            "--minutes"
        )
    return sweep


def process(
    sweep: m.Sweep,
    cell: m.Cell,
    modes: Sequence[str],
    caches: children.Caches,
    scratch: Path,
    until: float,
) -> trials.Trial:
    asked = sweep.question
    options = m.Options(
        workload=asked.workload,
        workload_args=asked.workload_args,
        seed=asked.seed,
        steps=asked.steps,
        warmup=asked.warmup,
    )
    mode = cell.mode if cell.mode in modes else m.AS_IS
    question = m.CellQuestion(
        cell=cell, strategy=asked.strategy, mode=mode, device=asked.device, cold=False
    )
    return trials.run(
        MEASURE, question, options=options, scratch=scratch, caches=caches, until=until
    )


def measure(
    sweep: m.Sweep, kept: dict[str, Any], save: Any, caches: Path, given: argparse.Namespace
) -> bool:
    """The processes that are missing in ``kept``. False: the time was up."""
    cells = {each.cell.name: each.cell for each in sweep.cells if not each.dead}
    # as a sweep has it: the probe is paid once for a machine
    extra = {"TORCHINDUCTOR_VEC_ISA_OK": "1"}
    asked, rounds = sweep.question, range(max(given.processes, given.cold))
    workload = loading.load(asked.workload, asked.workload_args, asked.seed)
    modes = next(each.modes for each in workload.strategies() if each.name == asked.strategy)
    with tempfile.TemporaryDirectory(prefix="kgprof-brute-") as scratch:
        for number, (name, cell) in itertools.product(rounds, cells.items()):
            if number % 2:  # the other way round
                name, cell = list(cells.items())[len(cells) - 1 - list(cells).index(name)]
            found = kept["cells"].setdefault(name, {"start_s": [], "step_us": [], "failed": ""})
            for kind, wanted in (("start_s", given.cold), ("step_us", given.processes)):
                if number >= wanted or len(found[kind]) > number or found["failed"]:
                    continue
                cold = kind == "start_s"
                # The first cold process leaves the caches that the warm ones have.
                warm = caches / str(list(cells).index(name))
                folder = warm if not cold or not warm.exists() else Path(scratch) / "cold"
                own = children.Caches(folder=folder, kept=folder == warm, extra=extra)
                trial = process(sweep, cell, modes, own, Path(scratch), given.until)
                if trial.interrupted or trial.time_up:
                    return False
                times = m.decode_json(trial.answer, m.CellAnswer).times if trial.answer else None
                if times is None or not times.step_us:
                    found["failed"] = trial.exit.words
                else:
                    step_us = statistics.median(times.step_us)
                    start_s = max(0.0, sum(times.start_s) - len(times.start_s) * step_us / 1e6)
                    found[kind].append(start_s if cold else step_us)
                save()
    return True


def judged(sweep: m.Sweep, kept: dict[str, Any]) -> dict[str, Any]:
    """What is known so far; nothing before there are FEWEST rounds of every cell."""
    (verdict,) = sweep.verdicts
    if verdict.best is None:
        return {}
    cells = [each.cell for each in sweep.cells]
    compiled = any(cell.compiles and cell.precision is m.Precision.AS_IS for cell in cells)
    cells = [cell for cell in cells if cell.precision is m.Precision.AS_IS or not compiled]
    ran = {cell.name: kept["cells"][cell.name] for cell in cells if cell.name in kept["cells"]}
    ran = {name: each for name, each in ran.items() if not each["failed"]}
    rounds = min(
        (len(each["step_us"]) if each["start_s"] else 0 for each in ran.values()), default=0
    )
    chosen = verdict.best.name
    if rounds < FEWEST or chosen not in ran:
        return {}
    totals = {
        name: [
            start_s + sweep.executions * us / 1e6
            for start_s, us in zip(itertools.cycle(each["start_s"]), each["step_us"], strict=False)
        ]
        for name, each in ran.items()
    }
    medians = {name: statistics.median(each) for name, each in totals.items()}
    fastest = min(medians, key=lambda name: medians[name])
    ratio, low, high = ratio_of(totals[chosen][:rounds], totals[fastest][:rounds])
    return {
        "recommended": chosen,
        "fastest": fastest,
        "ratio": [ratio, low, high],
        "right": chosen == fastest or ratio <= LEVEL or low <= 1,
        "rounds": rounds,
        "total_s": medians,
        "total_said_s": {
            each.cell.name: each.total.value
            for each in sweep.worth
            if isinstance(each.total, m.Estimate)
        },
        "left_out": {
            name: each["failed"] for name, each in kept["cells"].items() if each["failed"]
        },
    }


def advised(sweep: m.Sweep, kept: dict[str, Any]) -> dict[str, Any]:
    """The verdicts for other numbers of executions, from the same processes on both sides."""
    found = {
        str(n): judged(weighed(sweep, n), kept)
        for n in (round(sweep.executions * times) for times in OTHERS)
    }
    shown = ("recommended", "fastest", "ratio", "right")
    return {n: {name: each[name] for name in shown} for n, each in found.items() if each}


def ratio_of(totals: Sequence[float], others: Sequence[float]) -> tuple[float, float, float]:
    """Geometric mean of the rounds' ratios, with its 95 % interval."""
    logs = [math.log(one / other) for one, other in zip(totals, others, strict=True)]
    middle = statistics.fmean(logs)
    half = t_quantile(len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(middle), math.exp(middle - half), math.exp(middle + half)


def line(name: str, kept: dict[str, Any]) -> str:
    if not (found := kept.get("found")):
        ended = "".join(
            f"; {cell} {each['failed']}" for cell, each in kept["cells"].items() if each["failed"]
        )
        return f"{name}: not measured in {FEWEST} rounds yet{ended}"
    ratio, low, high = found["ratio"]
    compared = f"{found['recommended']} takes {found['total_s'][found['recommended']]:.3g} s"
    if found["recommended"] != found["fastest"]:
        fastest = f"{found['fastest']} {found['total_s'][found['fastest']]:.3g} s"
        compared += f", {fastest}: ratio {ratio:.3f} (95 % {low:.3f} to {high:.3f})"
    return f"{name}: {'right' if found['right'] else 'WRONG'}; {compared}; {found['rounds']} rounds"


def merged(files: Sequence[Path]) -> dict[str, Any]:
    """Several FILEs as one. A workload stands in one of them only."""
    whole: dict[str, Any] = {"sittings": [], "workloads": {}}
    for file in files:
        part = json.loads(file.read_text())
        if twice := whole["workloads"].keys() & part["workloads"].keys():
            raise SystemExit(
                f"{file} holds {', '.join(sorted(twice))}, which another file holds too"
            )
        whole["sittings"] += part["sittings"]
        whole["workloads"] |= part["workloads"]
    whole["sittings"].sort(key=lambda sitting: sitting["at"])
    return whole


def cpu_name() -> str:
    names = [
        line.partition(":")[2]
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if "model name" in line
    ]
    return names[0].strip() if names else platform.processor()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, help="what was measured, and the results")
    parser.add_argument("sweeps", type=Path, nargs="*", help="folders that kgprof sweep wrote")
    parser.add_argument(
        "--merge",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="write FILE from these, and measure none",
    )
    parser.add_argument("--processes", type=int, default=7, help="with warm caches, of each cell")
    parser.add_argument("--cold", type=int, default=2, help="with cold caches, of each cell")
    parser.add_argument("--minutes", type=float, default=60.0, help="of this sitting")
    given = parser.parse_args()
    if bool(given.sweeps) == bool(given.merge):
        parser.error("give folders that kgprof sweep wrote, or --merge with files")
    if given.merge:
        whole = merged(given.merge)
        given.file.write_text(json.dumps(whole, indent=1) + "\n")
        for name, own in whole["workloads"].items():
            print(line(name, own))
        return summary(whole)
    given.until = time.monotonic() + 60 * given.minutes
    kept = (
        json.loads(given.file.read_text())
        if given.file.exists()
        else {"sittings": [], "workloads": {}}
    )
    kept["sittings"].append(
        {
            "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "command": ["python", "benchmarks/brute_force.py", *sys.argv[1:]],
            "machine": platform.platform(),
            "cpu": cpu_name(),
            "cores": len(os.sched_getaffinity(0)),
            "cores_of_machine": os.cpu_count(),
            "threads": os.environ.get("OMP_NUM_THREADS"),
            "torch": metadata.version("torch"),
            "load": os.getloadavg(),
        }
    )

    def save() -> None:
        partial = given.file.with_name(f"{given.file.name}.partial")
        partial.write_text(json.dumps(kept, indent=1) + "\n")
        partial.replace(given.file)

    for folder in given.sweeps:
        sweep, name = read(folder), folder.resolve().name
        asked: dict[str, Any] = {
            "created_utc": sweep.created_utc,
            "workload": sweep.question.workload.rpartition("/")[2],
        }
        asked |= {"args": [*sweep.question.workload_args], "strategy": sweep.question.strategy}
        asked |= {"device": sweep.question.device_name, "executions": sweep.executions}
        own = kept["workloads"].setdefault(name, {"sweep": asked, "cells": {}})
        if own["sweep"] != asked:
            raise SystemExit(f"{given.file} has another sweep named {name}: choose another file")
        caches = given.file.with_name(f"{given.file.name}.caches") / name
        complete = measure(sweep, own, save, caches, given)
        own["load_after"] = os.getloadavg()
        own["found"], own["advised"] = judged(sweep, own), advised(sweep, own)
        save()
        print(line(name, own), flush=True)
        if not complete:
            break
    return summary(kept)


def summary(kept: dict[str, Any]) -> int:
    done = [each["found"] for each in kept["workloads"].values() if each.get("found")]
    print(f"right: {sum(each['right'] for each in done)} of {len(done)}")
    others = [
        each for own in kept["workloads"].values() for each in own.get("advised", {}).values()
    ]
    print(
        f"for other numbers of executions: {sum(each['right'] for each in others)} of {len(others)}"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
