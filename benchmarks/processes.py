"""`kgprof evaluate` in one process and in several, in turn: seconds, speed-up, and whether the
result is the same.

    python benchmarks/processes.py 1 2 4 --turns 3 -o benchmarks/results/processes_h200.json -- \
        --data ../shared/data/family --preset seed --queries 5000 --corruptions 1000 \
        --mode default --first-look float16 --device cuda

What follows ``--`` goes to `kgprof evaluate`. Three times of each: ``search`` is that of the
process that searched longest; ``elapsed`` is from the first process's first search to the sum of
all results, so with drawing, ranking and adding up; ``whole`` is the command from its start to its
end, with imports and compilation. A speed-up is the median of one process over the median of
several. Before the first turn, each number of processes runs once, uncounted: it fills the caches.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

# fields of `kgprof evaluate --format json`
TIMES = {"search": "seconds", "elapsed": "elapsed_seconds"}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("processes", nargs="+", type=int)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("-o", "--output", type=Path, default=Path("reports/processes.json"))
    asked, evaluate = parser.parse_known_args()
    evaluate = [word for word in evaluate if word != "--"]
    runs: dict[int, list[dict[str, Any]]] = {count: [] for count in asked.processes}
    for turn in range(asked.turns + 1):
        for count in asked.processes:
            found = run(count, evaluate)
            print(f"turn {turn}, {count} processes: {found}", flush=True)
            if turn:
                runs[count].append(found)
            asked.output.parent.mkdir(parents=True, exist_ok=True)
            asked.output.write_text(json.dumps(summary(runs, evaluate), indent=1) + "\n")


def run(count: int, evaluate: list[str]) -> dict[str, Any]:
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(count)] if count > 1 else []
    command = [
        sys.executable,
        *launcher,
        "-m",
        "kgprof",
        "evaluate",
        *evaluate,
        "-q",
        "--format",
        "json",
    ]
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ})
    whole = time.monotonic() - began
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-2000:]}")
    answer = json.loads(done.stdout)["evaluations"][0]
    times = {name: answer[field] for name, field in TIMES.items()}
    kept = {
        name: answer[name]
        for name in ("candidates", "processes", "sha256", "peak_bytes", "peak_gpu_bytes")
    }
    return {"whole": whole, **times, **kept}


def summary(runs: dict[int, list[dict[str, Any]]], evaluate: list[str]) -> dict[str, Any]:
    medians = {
        count: {name: statistics.median(each[name] for each in found) for name in ("whole", *TIMES)}
        for count, found in runs.items()
        if found
    }
    one = medians.get(1)
    return {
        "command": " ".join(["kgprof evaluate", *evaluate]),
        "environment": environment(),
        "same_result": len({each["sha256"] for found in runs.values() for each in found}) == 1,
        "median_s": medians,
        "speed_up": {
            count: {name: one[name] / median for name, median in of.items()}
            for count, of in medians.items()
            if one
        },
        "runs": runs,
    }


def environment() -> dict[str, Any]:
    import torch

    cards = [torch.cuda.get_device_name(card) for card in range(torch.cuda.device_count())]
    return {
        "cards": cards,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
    }


if __name__ == "__main__":
    main()
