"""What the COMPILE pass costs: the first call and the later calls, with kgprof listening over without.

    python benchmarks/capture_cost.py --pairs 20 -o benchmarks/results/capture_cost.json

Each measurement is a fresh process with a cold compiler cache; the two arms of a pair run one after the other, the
order alternating from pair to pair, and the ratio is taken within the pair. The interval is the 2.5th to 97.5th
percentile of the median over 10,000 bootstrap samples of the pairs (seeded).
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
from collections.abc import Callable
from pathlib import Path

import numpy as np

BARE, CAPTURED = "bare", "captured"
FIRST_CALL, LATER_CALLS = "first_call_s", "later_call_us"
BOOTSTRAPS = 10_000

Measured = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", nargs="?", default="linkpred")
    parser.add_argument("--strategy", default="fused")
    parser.add_argument("--mode", default="default")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--calls", type=int, default=40)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--arm", choices=[BARE, CAPTURED], help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.arm:
        print(json.dumps(measure(asked)))
        return
    found = run_pairs(asked)
    print(table(found))
    if asked.output:
        asked.output.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


# ---------------------------------------------------------------- one measurement, in a process of its own


def measure(asked: argparse.Namespace) -> Measured:
    import torch

    from kgprof.model import Options, RunKey
    from kgprof.record.torch_trace import compile_pass
    from kgprof.workloads import loading

    device = torch.device(asked.device)
    workload = loading.load(asked.workload, (), 0)
    session = workload.prepare(RunKey(strategy=asked.strategy, mode=asked.mode), device)
    if asked.arm == CAPTURED:
        options = Options(workload=asked.workload, steps=asked.calls)
        with tempfile.TemporaryDirectory() as folder:
            call_us = compile_pass(session, device, options, records_to=Path(folder) / "records.jsonl.gz").call_us
    else:
        call_us = tuple(timed(session.step, device.type == "cuda") for _ in range(asked.calls))
    later = call_us[len(call_us) // 2 :]
    return {FIRST_CALL: call_us[0] / 1e6, LATER_CALLS: statistics.median(later)}


def timed(step: Callable[[], object], synchronize: bool) -> float:
    import torch

    began = time.perf_counter_ns()
    step()
    if synchronize:
        torch.cuda.synchronize()
    return (time.perf_counter_ns() - began) / 1e3


# ---------------------------------------------------------------- the pairs


def run_pairs(asked: argparse.Namespace) -> dict[str, object]:
    arguments = [asked.workload, *(f"--{name}={getattr(asked, name)}" for name in ("strategy", "mode", "device"))]
    arguments.append(f"--calls={asked.calls}")
    pairs: list[dict[str, Measured]] = []
    for number in range(asked.pairs):
        order = (BARE, CAPTURED) if number % 2 == 0 else (CAPTURED, BARE)
        pairs.append({arm: one_process([*arguments, f"--arm={arm}"]) for arm in order})
        print(f"pair {number + 1} of {asked.pairs}: {pairs[-1]}", file=sys.stderr, flush=True)
    return {
        "command": " ".join(["python", "benchmarks/capture_cost.py", *sys.argv[1:]]),
        "environment": environment(),
        "workload": f"{asked.workload} {asked.strategy}.{asked.mode} on {asked.device}",
        "ratios": {
            name: summary([pair[CAPTURED][name] / pair[BARE][name] for pair in pairs]) for name in pairs[0][BARE]
        },
        "pairs": pairs,
    }


def one_process(arguments: list[str]) -> Measured:
    with tempfile.TemporaryDirectory() as cache:
        caches = {"TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor", "TRITON_CACHE_DIR": f"{cache}/triton"}
        # The vector-ISA probe compiles the same test files in both arms; without it the ratio is of the compile alone.
        settings = {**os.environ, **caches, "TORCHINDUCTOR_VEC_ISA_OK": "1"}
        done = subprocess.run(
            [sys.executable, __file__, *arguments], env=settings, check=True, stdout=subprocess.PIPE, text=True
        )
    measured: Measured = json.loads(done.stdout.splitlines()[-1])
    return measured


def summary(ratios: list[float]) -> dict[str, float]:
    draws = np.random.default_rng(0).choice(ratios, size=(BOOTSTRAPS, len(ratios)))
    low, high = np.percentile(np.median(draws, axis=1), [2.5, 97.5])
    return {"median": statistics.median(ratios), "low": float(low), "high": float(high), "pairs": len(ratios)}


def environment() -> dict[str, str]:
    import torch

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    cores = len(os.sched_getaffinity(0))
    return {"torch": torch.__version__, "python": platform.python_version(), "gpu": gpu, "cores": str(cores)}


def table(found: dict[str, object]) -> str:
    ratios = found["ratios"]
    assert isinstance(ratios, dict)
    lines = [f"{found['workload']}: captured over bare, median of pairs (95 % interval)"]
    for name, r in ratios.items():
        lines.append(f"  {name:<14} {r['median']:.3f}  ({r['low']:.3f} to {r['high']:.3f}, {r['pairs']} pairs)")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
