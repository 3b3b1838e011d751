"""What the COMPILE pass costs: the first call and the later calls, with kgprof listening over
without.

    python benchmarks/capture_cost.py -o benchmarks/results/capture_cost.json

Each measurement is a fresh process with a cold compiler cache, in which torch's compiler is
imported before the clock starts. The two arms of a pair run one after the other, in the order ABBA
from pair to pair, and the ratio is taken within the pair. The interval is the one of order
statistics for a median, of at least 95 % whatever the distribution (20 pairs: the 6th to the 15th
ratio).

A limit is held if the interval reaches it: only when all of it lies above is it known that the cost
is too high. Exit code 0: both limits are held; 1: one is not; 2: the output is of other conditions;
6: fewer than PAIRS pairs.

After each pair the output is written, and a later call with the same output goes on where it
stopped.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BARE, CAPTURED = "bare", "captured"
FIRST_CALL, LATER_CALLS = "first_call_s", "later_call_us"
# of the ratio; torch.compile's time is the first call's
LIMITS = {FIRST_CALL: 1.10, LATER_CALLS: 1.02}
PAIRS = 20  # fewer give no verdict
CONFIDENCE = 0.95
HELD, NOT_HELD, NO_VERDICT = "held", "not held", f"no verdict, below {PAIRS} pairs"
EXIT_CODES = {HELD: 0, NOT_HELD: 1, NO_VERDICT: 6}

Measured = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workload", nargs="?", default="linkpred")
    parser.add_argument("--strategy", default="fused")
    parser.add_argument("--mode", default="default")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument(
        "--calls", type=int, default=200, help="the median of the later half is the step time"
    )
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--arm", choices=[BARE, CAPTURED], help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.arm:
        print(json.dumps(measure(asked)))
        return
    found = run_pairs(asked)
    print(table(found))
    sys.exit(max(EXIT_CODES[judged["verdict"]] for judged in found["ratios"].values()))


# --------------------------------------------------------- one measurement, in a process of its own


def measure(asked: argparse.Namespace) -> Measured:
    import torch
    import torch._dynamo
    import torch._inductor.compile_fx

    from kgprof.model import Options, RunKey
    from kgprof.record.passes.torch_trace import compile_pass
    from kgprof.workloads import loading

    device = torch.device(asked.device)
    workload = loading.load(asked.workload, (), 0)
    session = workload.prepare(RunKey(strategy=asked.strategy, mode=asked.mode), device)
    if asked.arm == CAPTURED:
        options = Options(workload=asked.workload, steps=asked.calls)
        with tempfile.TemporaryDirectory() as folder:
            records = Path(folder) / "records.jsonl.gz"
            call_us = compile_pass(lambda: session, device, options, records_to=records).call_us
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


def run_pairs(asked: argparse.Namespace) -> dict[str, Any]:
    arguments = [
        asked.workload,
        *(f"--{name}={getattr(asked, name)}" for name in ("strategy", "mode", "device")),
    ]
    arguments.append(f"--calls={asked.calls}")
    conditions = {
        "environment": environment(),
        "workload": (
            f"{asked.workload} {asked.strategy}.{asked.mode} on {asked.device}, {asked.calls} calls"
        ),
    }
    pairs = earlier(asked.output, conditions)
    for number in range(len(pairs), asked.pairs):
        order = (BARE, CAPTURED) if number % 2 == 0 else (CAPTURED, BARE)
        pairs.append({arm: one_process([*arguments, f"--arm={arm}"]) for arm in order})
        print(f"pair {number + 1} of {asked.pairs}: {pairs[-1]}", file=sys.stderr, flush=True)
        if asked.output:
            asked.output.parent.mkdir(parents=True, exist_ok=True)
            asked.output.write_text(
                json.dumps(report(conditions, pairs), indent=2) + "\n", encoding="utf-8"
            )
    return report(conditions, pairs)


def earlier(output: Path | None, conditions: dict[str, Any]) -> list[dict[str, Measured]]:
    """The pairs of a call that was stopped. Exits where they were measured under other
    conditions."""
    if output is None or not output.exists():
        return []
    found = json.loads(output.read_text(encoding="utf-8"))
    if {name: found.get(name) for name in conditions} != conditions:
        print(
            f"{output} was measured under other conditions: remove it, or name another -o",
            file=sys.stderr,
        )
        sys.exit(2)
    pairs: list[dict[str, Measured]] = found["pairs"]
    return pairs


def report(conditions: dict[str, Any], pairs: list[dict[str, Measured]]) -> dict[str, Any]:
    ratios = {name: [pair[CAPTURED][name] / pair[BARE][name] for pair in pairs] for name in LIMITS}
    return {
        "command": " ".join(["python", "benchmarks/capture_cost.py", *sys.argv[1:]]),
        **conditions,
        "ratios": {name: judged(values, LIMITS[name]) for name, values in ratios.items()},
        "pairs": pairs,
    }


def one_process(arguments: list[str]) -> Measured:
    with tempfile.TemporaryDirectory() as cache:
        caches = {
            "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor",
            "TRITON_CACHE_DIR": f"{cache}/triton",
        }
        # The vector-ISA probe compiles the same test files in both arms; without it the ratio is of
        # the compile alone.
        settings = {**os.environ, **caches, "TORCHINDUCTOR_VEC_ISA_OK": "1"}
        done = subprocess.run(
            [sys.executable, __file__, *arguments],
            env=settings,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
    measured: Measured = json.loads(done.stdout.splitlines()[-1])
    return measured


def judged(ratios: list[float], limit: float) -> dict[str, Any]:
    low, high = interval(ratios)
    verdict = NO_VERDICT if len(ratios) < PAIRS else HELD if low <= limit else NOT_HELD
    return {
        "median": statistics.median(ratios),
        "low": low,
        "high": high,
        "pairs": len(ratios),
        "limit": limit,
        "verdict": verdict,
    }


def interval(values: list[float]) -> tuple[float, float]:
    """Of the median: the k-th smallest and the k-th largest value, with the largest k of enough
    confidence.

    A value is below the median with probability 1/2, so the number of those that are is binomial.
    With fewer than six values none has that confidence, and the interval is all of them.
    """
    ordered, n = sorted(values), len(values)
    # the chance that fewer than k values lie below the median, times two for both sides
    outside = 0.0
    k = 0
    while k < n and (outside := outside + 2 * math.comb(n, k) / 2**n) <= 1 - CONFIDENCE:
        k += 1
    return ordered[max(0, k - 1)], ordered[n - max(1, k)]


def environment() -> dict[str, str]:
    import torch

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    cores = len(os.sched_getaffinity(0))
    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "gpu": gpu,
        "cores": str(cores),
    }


def table(found: dict[str, Any]) -> str:
    lines = [f"{found['workload']}: captured over bare, median of pairs (95 % interval)"]
    for name, r in found["ratios"].items():
        of_pairs = f"({r['low']:.3f} to {r['high']:.3f}, {r['pairs']} pairs)"
        lines.append(
            f"  {name:<14} {r['median']:.3f}  {of_pairs}  at most {r['limit']:.2f}: {r['verdict']}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
