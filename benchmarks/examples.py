"""The documents' own programs, each strategy in each mode: first call, step time and kernels,
beside the mode eager.

    python benchmarks/examples.py --device cuda -o benchmarks/results/examples_h200.json
    python benchmarks/examples.py --device cpu --small

Each cell is a process of its own, with a cold compiler cache and a limit. A step time is the wall
clock over a block of steps that fills BLOCK_S and ends with a synchronisation, divided by their
number; BLOCKS of them, median and extremes. Peak memory is what torch had allocated during those
blocks. The results file is written after each cell, and a later call goes on where it stopped; a
cell that failed has its error and is not tried again.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

BLOCK_S = 0.2
BLOCKS = 9
LIMIT_S = 300

Cell = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="*", help="of `kgprof workloads`; all but the evaluator by default"
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--small", action="store_true", help="the shapes for a CPU")
    parser.add_argument(
        "--mode", action="append", help="default: eager, default and, on a GPU, reduce-overhead"
    )
    parser.add_argument(
        "--until-s", type=float, default=float("inf"), help="start no cell later than this"
    )
    parser.add_argument("-o", "--output", type=Path, default=Path("reports/examples.json"))
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.cell:
        name, strategy, mode = asked.cell.split("/")
        print(json.dumps(measured(name, strategy, mode, asked.device, asked.small)))
        return
    began, kept = (
        time.monotonic(),
        json.loads(asked.output.read_text()) if asked.output.exists() else {},
    )
    modes = asked.mode or [
        "eager",
        "default",
        *(["reduce-overhead"] if asked.device == "cuda" else []),
    ]
    cells = kept.setdefault("cells", {})
    kept["command"] = f"python {' '.join(sys.argv)}"
    for name in planned(asked.names, modes):
        if name in cells or time.monotonic() - began > asked.until_s:
            continue
        cells[name] = in_a_child(name, asked.device, asked.small)
        kept["environment"] = cells[name].pop("environment", kept.get("environment"))
        asked.output.parent.mkdir(parents=True, exist_ok=True)
        asked.output.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
        print(f"{name:<50} {said(cells[name])}", flush=True)


def planned(names: list[str], modes: list[str]) -> list[str]:
    """Example/strategy/mode of every cell, the modes of one strategy one after the other."""
    from kgprof.workloads import catalog, example

    found = []
    for name in names or catalog.EXAMPLES:
        offered = example.ExampleWorkload(name, [], 0).strategies()
        found += [
            f"{name}/{each.name}/{mode}" for each in offered for mode in modes if mode in each.modes
        ]
    return found


def in_a_child(cell: str, device: str, small: bool) -> Cell:
    """What ``measured`` gives, or the error that ended it."""
    with tempfile.TemporaryDirectory(prefix="kgprof-examples-") as cache:
        command = [
            sys.executable,
            __file__,
            "--cell",
            cell,
            "--device",
            device,
            *(["--small"] if small else []),
        ]
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache}
        try:
            ran = subprocess.run(
                command,
                capture_output=True,
                text=True,
                env=environment,
                timeout=LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {"error": f"not done after {LIMIT_S} s"}
    if ran.returncode != 0:
        return {
            "error": (ran.stderr.strip().splitlines() or [f"ended with {ran.returncode}"])[-1][:300]
        }
    cell_measured: Cell = json.loads(ran.stdout.splitlines()[-1])
    return cell_measured


def measured(name: str, strategy: str, mode: str, device_name: str, small: bool) -> Cell:
    """First call in seconds, a step in microseconds, kernels (GPU) or operators (CPU) a step, peak
    bytes of a GPU."""
    import torch

    from kgprof import model as m
    from kgprof.workloads import example

    device = torch.device(device_name)
    on_gpu = device.type == "cuda"
    workload = example.ExampleWorkload(name, ["--small"] if small else [], 0)
    session = workload.prepare(m.RunKey(strategy=strategy, mode=mode), device)

    def seconds(steps: int) -> float:
        if on_gpu:
            torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(steps):
            session.step()
        if on_gpu:
            torch.cuda.synchronize()
        return time.perf_counter() - began

    first_s = seconds(1)
    seconds(5)
    steps = max(1, round(BLOCK_S / max(seconds(3) / 3, 1e-6)))
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    step_us = [seconds(steps) / steps * 1e6 for _ in range(BLOCKS)]
    peak = torch.cuda.max_memory_allocated() if on_gpu else None
    kind = torch.profiler.ProfilerActivity
    with torch.profiler.profile(
        activities=[kind.CPU, kind.CUDA] if on_gpu else [kind.CPU]
    ) as profiled:
        seconds(4)
    wanted = "CUDA" if on_gpu else "CPU"
    events = [
        event
        for event in profiled.events()
        if event.device_type.name == wanted and not event.is_user_annotation
    ]
    return {
        "first_call_s": first_s,
        "step_us": {
            "median": statistics.median(step_us),
            "low": min(step_us),
            "high": max(step_us),
            "blocks": BLOCKS,
        },
        "steps_per_block": steps,
        "kernels_per_step" if on_gpu else "operators_per_step": len(events) / 4,
        "busy_us_per_step": sum(event.device_time_total if on_gpu else 0.0 for event in events) / 4,
        "peak_bytes": peak,
        "environment": {
            "torch": torch.__version__,
            "python": platform.python_version(),
            "gpu": torch.cuda.get_device_name() if on_gpu else None,
            "threads": torch.get_num_threads(),
        },
    }


def said(cell: Cell) -> str:
    if "error" in cell:
        return str(cell["error"])
    step, first_s = cell["step_us"], cell["first_call_s"]
    return (
        f"{step['median']:,.1f} us ({step['low']:,.1f} to {step['high']:,.1f}), first "
        f"call {first_s:.1f} s"
    )


if __name__ == "__main__":
    main()
