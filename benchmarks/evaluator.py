"""The evaluator's strategies side by side: ms per candidate and the result vector's sha256, strategy by strategy.

    python benchmarks/evaluator.py --data ../shared/data/family --device cuda --until-s 220

Each run has a process of its own and is written as soon as it is there; a later call goes on where the last one
stopped, and starts over if the question differs. A run first evaluates once, which compiles and warms up, then
``--samples`` times. A run that failed or ran past ``--limit-s`` keeps the reason and is tried again by the next call.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from kgprof.errors import KgprofError
from kgprof.model import RunKey
from kgprof.workloads.linkpred.workload import build

RUNS = [
    *("levels.eager", "levels.default", "fused.reduce-overhead", "fused.default", "fused.eager"),
    *("torch_cond.default", "torch_cond.eager", "batched.default", "batched.eager"),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", default=RUNS, help="strategy.mode")
    parser.add_argument("--data", type=Path, default=Path("../shared/data/family"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--queries", default="100")
    parser.add_argument("--corruptions", default="100")
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--until-s", type=float, default=float("inf"), help="start no run later than this")
    parser.add_argument("--limit-s", type=float, default=3600, help="of one run")
    parser.add_argument("-o", "--output", type=Path, default=Path("benchmarks/results/evaluator.json"))
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.here:
        print(json.dumps(measure(given)))
        return
    began = time.monotonic()
    question = {"data": given.data.name, "queries": given.queries, "corruptions": given.corruptions}
    question |= {"preset": "seed", "device": given.device}
    kept = json.loads(given.output.read_text()) if given.output.exists() else {}
    if kept.get("question") != question:
        kept = {"question": question, "runs": {}}
    given.output.parent.mkdir(parents=True, exist_ok=True)
    for run in given.runs:
        left = given.until_s - (time.monotonic() - began)
        if "ms_per_candidate" in kept["runs"].get(run, {}) or left <= 0:
            continue
        kept["runs"][run] = measured = in_a_child(run, given, min(left, given.limit_s))
        kept["environment"] = measured.pop("environment", None) or kept.get("environment")
        kept["ms_per_candidate"] = {
            name: each["ms_per_candidate"] for name, each in kept["runs"].items() if "ms_per_candidate" in each
        }
        given.output.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
        print(run, measured.get("ms_per_candidate", measured.get("error")), measured.get("sha256", ""), flush=True)


def in_a_child(run: str, given: argparse.Namespace, limit_s: float) -> dict[str, Any]:
    command = [sys.executable, __file__, run, "--here", "--device", given.device, "--data", str(given.data)]
    command += ["--queries", given.queries, "--corruptions", given.corruptions, "--samples", str(given.samples)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        return {"error": f"not finished after {limit_s:.0f} s"}
    if done.returncode:
        return {"error": done.stderr.strip()[-2000:]}
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer | {"command": " ".join(["python", "benchmarks/evaluator.py", *command[2:]])}


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """One run in this process."""
    options = ["--data", str(given.data), "--preset", "seed"]
    try:
        of = build([*options, "--queries", given.queries, "--corruptions", given.corruptions], 0)
        strategy, mode = given.runs[0].split(".")
        session = of.prepare(RunKey(strategy=strategy, mode=mode), torch.device(given.device))
    except KgprofError as error:
        sys.exit(str(error))
    seconds = []
    for _ in range(1 + given.samples):
        began = time.perf_counter()
        counted = session.count(lambda: None)  # ends by copying the results to the CPU, so it awaits the GPU
        seconds.append(time.perf_counter() - began)
    result, size = session.result(), counted.candidates
    samples = [each * 1e3 / size for each in seconds[1:]]
    cuda = given.device.startswith("cuda")
    answer: dict[str, Any] = {
        "candidates": size,
        "finished": size - counted.unfinished,
        "samples_ms_per_candidate": samples,
        "spread": [min(samples), max(samples)],
        "first_evaluation_s": seconds[0],
        "steps": counted.steps,
        "sha256": hashlib.sha256(result["outcome"].tobytes() + result["steps"].tobytes()).hexdigest(),
        "classes": {name: getattr(counted, name) for name in ("proved", "failed", "depth_truncated", "overflow")},
        "peak_memory_bytes": torch.cuda.max_memory_allocated() if cuda else None,
        "environment": {
            "torch": torch.__version__,
            "python": platform.python_version(),
            "processor": torch.cuda.get_device_name() if cuda else platform.processor() or platform.machine(),
            "threads": torch.get_num_threads(),
        },
    }
    if not counted.unfinished:  # a time per candidate means nothing while some are unfinished
        answer["ms_per_candidate"] = statistics.median(samples)
    return answer


if __name__ == "__main__":
    main()
