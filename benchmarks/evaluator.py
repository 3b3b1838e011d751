"""The evaluator's strategies side by side: ms per candidate and the result vector's sha256,
strategy by strategy.

    python benchmarks/evaluator.py --data ../shared/data/family --device cuda --until-s 220
    python benchmarks/evaluator.py ../old:fused.default levels.default --queries 20 --rounds 3 -o
    cpu.json
    python benchmarks/evaluator.py levels.default fused.default --batch-sizes 64,256,1024,4096,16384
    --max-atoms 21

``FOLDER:strategy.mode`` runs the code of another checkout, ``strategy.mode+first-look=float16``
gives that run an option. Each run has a process of its own, ``--rounds`` of them in turn with the
other runs', and is written as soon as it is there; a later call goes on where the last one stopped,
and starts over if the question differs. A process first evaluates once, which compiles and warms
up, then ``--samples`` times. A run that failed or ran past ``--limit-s`` keeps the reason and is
tried again by the next call.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kgprof.errors import KgprofError
from kgprof.model import RunKey
from kgprof.workloads.linkpred.workload import build

RUNS = [
    *(
        "levels.eager",
        "levels.default",
        "stepped.reduce-overhead",
        "stepped.default",
        "fused.reduce-overhead",
    ),
    *(
        "fused.default",
        "fused.eager",
        "looped.default",
        "torch_cond.default",
        "torch_cond.eager",
        "recycled.default",
        "recycled.eager",
    ),
    *("batched.default", "batched.eager"),
]
CLASSES = ("unfinished", "proved", "failed", "truncated", "overflow")  # by the codes of proof.py
QUESTION = ("device", "queries", "corruptions", "max_atoms")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "runs", nargs="*", default=RUNS, help="[FOLDER:]strategy.mode[+option=value ...]"
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data/family"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--queries", default="100")
    parser.add_argument("--corruptions", default="100")
    parser.add_argument("--max-atoms", default="6")
    parser.add_argument("--batch-sizes", default="256", help="several: each run once with each")
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=1, help="processes of each run, in turn")
    parser.add_argument(
        "--until-s", type=float, default=float("inf"), help="start no run later than this"
    )
    parser.add_argument("--limit-s", type=float, default=3600, help="of one run")
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("benchmarks/results/evaluator.json")
    )
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.here:
        print(json.dumps(measure(given)))
        return
    began = time.monotonic()
    question = {
        "data": given.data.name,
        "preset": "seed",
        **{name: getattr(given, name) for name in QUESTION},
    }
    kept = json.loads(given.output.read_text()) if given.output.exists() else {}
    if kept.get("question") != question:
        kept = {"question": question, "runs": {}}
    given.output.parent.mkdir(parents=True, exist_ok=True)
    sizes = given.batch_sizes.split(",")
    for turn, size, run in itertools.product(range(given.rounds), sizes, given.runs):
        name = run.rpartition("/")[2] if len(sizes) == 1 else f"{run.rpartition('/')[2]} B={size}"
        found = kept["runs"].get(name, {})
        left = given.until_s - (time.monotonic() - began)
        if len(found.get("processes", [])) > turn or left <= 0:
            continue
        measured = in_a_child(run, size, given, min(left, given.limit_s))
        kept["environment"] = measured.pop("environment", None) or kept.get("environment")
        if "error" not in measured:
            measured["processes"] = [*found.get("processes", []), measured.pop("samples")]
            medians = [statistics.median(samples) for samples in measured["processes"]]
            measured |= {
                "ms_per_candidate": statistics.median(medians),
                "spread": [min(medians), max(medians)],
            }
            if len(medians) == 1:
                measured["spread"] = [min(measured["processes"][0]), max(measured["processes"][0])]
        if found.get("sha256", measured.get("sha256")) != measured.get("sha256"):
            measured["error"] = "its processes have different results"
        kept["runs"][name] = measured
        kept["ms_per_candidate"] = {
            name: each["ms_per_candidate"]
            for name, each in kept["runs"].items()
            if "error" not in each
        }
        given.output.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
        print(
            name,
            measured.get("ms_per_candidate", measured.get("error")),
            measured.get("sha256", ""),
            flush=True,
        )


def in_a_child(run: str, size: str, given: argparse.Namespace, limit_s: float) -> dict[str, Any]:
    folder, _, name = run.rpartition(":")
    command = [
        sys.executable,
        __file__,
        name,
        "--here",
        "--device",
        given.device,
        "--data",
        str(given.data.resolve()),
    ]
    command += [
        "--queries",
        given.queries,
        "--corruptions",
        given.corruptions,
        "--samples",
        str(given.samples),
    ]
    command += ["--batch-sizes", size, "--max-atoms", given.max_atoms]
    root = Path(folder).resolve() if folder else Path(__file__).resolve().parents[1]
    others = os.environ.get("PYTHONPATH")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(root), *([others] if others else [])]),
    }
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
            env=environment,
            cwd=root,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"not finished after {limit_s:.0f} s"}
    if done.returncode:
        return {"error": done.stderr.strip()[-2000:]}
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    python, *words = command
    return {
        **answer,
        "command": " ".join([Path(python).name, "benchmarks/evaluator.py", *words[1:]]),
    }


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """One run in this process."""
    options = ["--data", str(given.data), "--preset", "seed"]
    try:
        options += ["--queries", given.queries, "--corruptions", given.corruptions]
        name, *own = given.runs[0].split("+")
        options += [f"--{option}" for option in own]
        of = build([*options, "--batch-size", given.batch_sizes, "--max-atoms", given.max_atoms], 0)
        strategy, mode = name.split(".")
        session = of.prepare(RunKey(strategy=strategy, mode=mode), torch.device(given.device))
    except KgprofError as error:
        sys.exit(str(error))
    seconds, cpu_seconds = [], []
    for _ in range(1 + given.samples):
        began, cpu_began = time.perf_counter(), time.process_time()
        # ends by copying the results to the CPU, so it awaits the GPU
        evaluated = session.evaluate(lambda: None)
        seconds.append(time.perf_counter() - began)
        cpu_seconds.append(time.process_time() - cpu_began)
    result = session.result()
    size = len(result["outcome"])
    classes = dict(
        zip(CLASSES, np.bincount(result["outcome"], minlength=len(CLASSES)).tolist(), strict=True)
    )
    samples = [each * 1e3 / size for each in seconds[1:]]
    cuda = given.device.startswith("cuda")
    answer: dict[str, Any] = {
        "candidates": size,
        "finished": size - classes["unfinished"],
        "samples": samples,
        # the process's own, on any machine
        "cpu_ms_per_candidate": statistics.median(cpu_seconds[1:]) * 1e3 / size,
        "first_evaluation_s": seconds[0],
        "steps": evaluated.steps,
        "sha256": hashlib.sha256(
            result["outcome"].tobytes() + result["steps"].tobytes()
        ).hexdigest(),
        "classes": classes,
        "peak_memory_bytes": torch.cuda.max_memory_allocated() if cuda else None,
        "environment": {
            "torch": torch.__version__,
            "python": platform.python_version(),
            "processor": torch.cuda.get_device_name()
            if cuda
            else platform.processor() or platform.machine(),
            "threads": torch.get_num_threads(),
        },
    }
    if classes["unfinished"]:  # a time per candidate means nothing while some are unfinished
        answer["error"] = f"{classes['unfinished']} candidates are unfinished"
    return answer


if __name__ == "__main__":
    main()
