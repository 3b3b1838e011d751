"""Ranks of which it is known who is late and why, and what kgprof says of each.

    python benchmarks/late_ranks.py SHARED/cases/traces

Eight ranks in made traces (SHARED/cases/traces/late_*, their truth is in truth.json), two ranks of
gloo on this machine (tests/situations/ranks_on_a_cpu.py) and what two H100s and two gloo ranks left
in fixtures/recordings. Right is a sentence whose rank and cause are the truth's; nobody is late
where the truth names no rank. Keeps results/late_ranks.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "late_ranks.json"
RECORDINGS = ROOT / "fixtures" / "recordings"
PROGRAM = ROOT / "tests" / "situations" / "ranks_on_a_cpu.py"
LAUNCH = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "-m")
# truth.json's words for causes, as LateCause has them
CAUSES = {"host": "its CPU is late", "compute": "more compute", "copies": "slower copies"}
RUNS: dict[str, tuple[int | None, str | None]] = {
    "equal": (None, None),
    "many_operators": (None, None),
    "compute": (1, "more compute"),
    "python": (1, "its CPU is late"),
    "new_sizes": (1, "it alone recompiles"),
}


def kgprof(arguments: list[str], output: Path, **environment: str) -> dict[str, Any]:
    """The report's JSON."""
    command = [sys.executable, *arguments, "-o", str(output), "--no-hta", "-q"]
    subprocess.run(command, env={**os.environ, **environment}, check=False, timeout=600)
    return read(output / "report.json")


def read(path: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return report


def row(
    name: str, command: str, report: dict[str, Any], late: int | None, cause: str | None
) -> dict[str, Any]:
    balance = report["rank_balance"]
    named = None
    if balance["straggler"] is not None:
        (named,) = (
            each["rank"] for each in balance["ranks"] if each["run"] == balance["straggler"]
        )
    is_right = (named, balance["cause"]) == (late, cause)
    print(f"{'right' if is_right else 'WRONG'}  {name}: {balance['text']}", flush=True)
    return {
        "name": name,
        "command": command,
        "truth": {"late_rank": late, "cause": cause},
        "sentence": balance["text"],
        "verdict": report["verdict"]["text"],
        "right": is_right,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("traces", type=Path, help="the folder with late_*/ and truth.json")
    folder: Path = parser.parse_args().traces
    truths = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch)
        for place in sorted(folder.glob("late_*")):
            want = truths[f"{place.name}/rank0.json"]["want"]
            cause = None
            if want["late_rank"] is not None:
                cause = CAUSES[want.get("cause", "host")]  # late_groups is made as late_host is
            report = kgprof(["-m", "kgprof", "trace", str(place)], out / place.name)
            command = f"kgprof trace {place.name}"
            rows.append(row(place.name, command, report, want["late_rank"], cause))
        for situation, (late, cause) in RUNS.items():
            arguments = [*LAUNCH, "kgprof", "profile", str(PROGRAM)]
            report = kgprof(arguments, out / situation, SITUATION=situation)
            command = f"SITUATION={situation} torchrun --nproc-per-node 2 -m kgprof profile"
            rows.append(row(f"gloo, {situation}", command, report, late, cause))
        for name, late, cause in (("straggler", 1, "more compute"), ("balanced", None, None)):
            place = RECORDINGS / "ranks_cpu" / name
            report = kgprof(["-m", "kgprof", "trace", str(place)], out / name)
            rows.append(row(f"ranks_cpu/{name}", "kgprof trace", report, late, cause))
        with tarfile.open(RECORDINGS / "first_answers_ranks_and_input_h100.tar.xz") as packed:
            packed.extractall(out, filter="data")
        kept, again = out / "one_rank_recompiles", out / "again.json"
        replay = [sys.executable, "-m", "kgprof", "report", str(kept), "--format", f"json={again}"]
        subprocess.run(replay, check=True, timeout=600)
        report = read(again)
        rows.append(row("two H100, new sizes", "kgprof report", report, 1, "it alone recompiles"))
    right = sum(each["right"] for each in rows)
    found = {
        "torch": torch.__version__,
        "right": right,
        "of": len(rows),
        "load_average": os.getloadavg()[0],
        "rows": rows,
    }
    RESULTS.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{right} of {len(rows)} right")


if __name__ == "__main__":
    main()
