"""What the first action of "What to do next" promised, and what it gave: programs in others' style
on a GPU.

    python benchmarks/actions.py -o reports/actions.json

For each program in tests/programs/gpu: `kgprof profile` as its owner would start it, with default
settings; then the program as it stands and with the fix applied (FIX names which), in turn,
``--turns`` times each. A gain is the difference of the medians of ms/step, which each program
prints of its own later steps; a bound is the action's, in the same unit.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).resolve().parent.parent / "tests" / "programs" / "gpu"
# The fix that a program applies, and the rule whose action asks for it.
FIXES = {
    "mnist": ("workers", "KGP607"),
    "vit_train": ("tf32", "KGP604"),
    "dqn_reads": ("pinned", "KGP608"),
    "many_parameters": ("fused", "KGP609"),
    "bert_eager_attention": ("fused", "KGP609"),
    "gcn_full": ("tf32", "KGP604"),
    "gpt_scores": ("fused", "KGP605"),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help=f"of {', '.join(FIXES)}; all by default")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("-o", "--output", type=Path, default=Path("reports/actions.json"))
    asked = parser.parse_args()
    found = json.loads(asked.output.read_text()) if asked.output.exists() else {}
    for name in asked.names or FIXES:
        if name not in found:
            found[name] = measured(name, *FIXES[name], asked.turns)
            asked.output.parent.mkdir(parents=True, exist_ok=True)
            asked.output.write_text(json.dumps(found, indent=1) + "\n")
            print(name, found[name], flush=True)


def measured(name: str, fix: str, rule: str, turns: int) -> dict[str, Any]:
    """The first action, its bound and the gain, in ms/step."""
    script = PROGRAMS / f"{name}.py"
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "kgprof", "profile", str(script), "-o", folder, "-q"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"kgprof profile {script} ended with {done.returncode}: {done.stderr[-2000:]}")
        report = json.loads((Path(folder) / "report.json").read_text())
    first = report["actions"][0]
    times: dict[str, list[float]] = {"as it stands": [], "fixed": []}
    for _ in range(turns):
        for label, value in (("as it stands", ""), ("fixed", fix)):
            times[label].append(ms_per_step(script, value))
    bound = first["saves"].get("us_per_step")
    return {
        "first_action": first["rule"],
        "is_the_fix_that_was_tried": first["rule"] == rule,
        "bound_ms": None if bound is None else bound / 1e3,
        "profiled_step_ms": {
            name: report["runs"][0]["step"][name] / 1e3 for name in ("median", "p10", "p90")
        },
        "as_it_stands_ms": times["as it stands"],
        "fixed_ms": times["fixed"],
        "gain_ms": statistics.median(times["as it stands"]) - statistics.median(times["fixed"]),
    }


def ms_per_step(script: Path, fix: str) -> float:
    """As the program prints it on its last line. Raises CalledProcessError where it fails."""
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "FIX": fix},
    )
    return float(done.stdout.split()[-1])


if __name__ == "__main__":
    main()
