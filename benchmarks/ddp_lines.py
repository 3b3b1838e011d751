"""How much of the GPU time of a DistributedDataParallel training has a source line, rank by rank.

    python benchmarks/ddp_lines.py -o benchmarks/results/ddp_lines.json

runs `torchrun --nproc-per-node 2 -m kgprof profile tests/programs/gpu/gpt_ddp.py` eagerly and
compiled, each with autocast and in float32. A share is the time of the kernels (on a CPU:
operators) whose line is known, of a project file or of a library, over the time of all in TRACE.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

PROGRAM = Path(__file__).resolve().parent.parent / "tests" / "programs" / "gpu" / "gpt_ddp.py"
VARIANTS = ("bf16", "float32", "bf16, compiled", "float32, compiled")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("benchmarks/results/ddp_lines.json")
    )
    given = parser.parse_args()
    cuda = torch.cuda.is_available()
    kept: dict[str, Any] = {
        "processor": torch.cuda.get_device_name()
        if cuda
        else platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "command": " ".join(["python", "benchmarks/ddp_lines.py", *sys.argv[1:]]),
        "shares": {},
    }
    for variant in VARIANTS:
        kept["shares"][variant] = shares(variant, given.processes)
        given.output.write_text(json.dumps(kept, indent=1) + "\n")
        print(variant, kept["shares"][variant], flush=True)


def shares(variant: str, processes: int) -> dict[str, Any]:
    """By rank: the share, and the kernels without a line that take the most time, in
    microseconds."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--nproc-per-node",
            str(processes),
            "-m",
            "kgprof",
        ]
        command += ["profile", str(PROGRAM), "--passes", "compile,memory,trace", "-o", folder, "-q"]
        done = subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, "FIX": variant}, check=False
        )
        report = Path(folder) / "report.json"
        if not report.exists():
            return {"error": done.stderr[-2000:]}
        found = {}
        for run in json.loads(report.read_text())["runs"]:
            kernels = run["kernels"]
            if not isinstance(kernels.get("lines_us"), float):
                found[run["key"]["strategy"]] = {
                    "error": kernels.get("reason") or kernels["lines_us"]
                }
                continue
            without = {
                row["name"][:80]: row["total_us"] - row.get("lines_us", 0.0)
                for row in kernels["rows"]
            }
            largest = sorted(without, key=lambda name: -without[name])[:5]
            found[run["key"]["strategy"]] = {
                "share": kernels["lines_us"] / kernels["total_us"],
                "total_us": kernels["total_us"],
                "without": {name: without[name] for name in largest if without[name] > 0},
            }
        return found


if __name__ == "__main__":
    main()
