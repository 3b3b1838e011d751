"""Faults put into the evaluator itself: a copy of the package in which one statement more stands in
a strategy's step.

The copy runs by ``python -m kgprof`` in its folder, so everything but that statement is the real
thing: the real step, compiled as the evaluator compiles it, in the real child process.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STRATEGIES = Path("kgprof", "workloads", "linkpred", "strategies")
QUICK = ("--backend", "eager", "--steps", "6", "--quiet", "-o", "out")
SMALL = ("--queries", "20", "--batch-size", "32")


@dataclass(frozen=True, kw_only=True)
class Fault:
    """``statement`` is put behind the line ``after`` of a strategy's file, both without their
    indentation."""

    statement: str
    after: str = "children = problem.derive(now.slots.states, now.slots.candidate)"
    strategy: str = "fused"


GRAPH_BREAK = Fault(statement='print("a step")')
RECOMPILES = Fault(
    statement='self.trail = getattr(self, "trail", "") + "."; moved_by = len(self.trail)'
)
SYNC = Fault(statement="waits = children.number.sum().item()")


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A copy of the package with the fault in it."""

    folder: Path  # where it is run
    file: Path  # the strategy's
    line: int  # of the statement
    step: int  # of the def of the step
    strategy: str


def plant(fault: Fault | None, folder: Path) -> Planted:
    """The package copied into ``folder``, with the fault; without one, as it is."""
    shutil.copytree(
        ROOT / "kgprof", folder / "kgprof", ignore=shutil.ignore_patterns("__pycache__")
    )
    for beside in ("templates", "fixtures"):
        (folder / beside).symlink_to(ROOT / beside)
    fault = fault or Fault(statement="")
    file = folder / STRATEGIES / f"{fault.strategy}.py"
    lines = file.read_text(encoding="utf-8").splitlines()
    (at,) = [number for number, line in enumerate(lines) if line.strip() == fault.after]
    indent = " " * (len(lines[at]) - len(lines[at].lstrip()))
    lines.insert(at + 1, (indent + fault.statement).rstrip())
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    (step,) = [
        number for number, line in enumerate(lines, start=1) if line.strip().startswith("def step(")
    ]
    return Planted(folder=folder, file=file, line=at + 2, step=step, strategy=fault.strategy)


def check_graphs(planted: Planted, *args: str) -> subprocess.CompletedProcess[str]:
    """The gate over the copy, in seconds: no code is generated."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith("KGPROF_") and key != "CI"
    }
    command = [
        sys.executable,
        "-m",
        "kgprof",
        "check-graphs",
        "linkpred",
        "--strategy",
        planted.strategy,
    ]
    return subprocess.run(
        [*command, *QUICK, *args, "--", *SMALL],
        cwd=planted.folder,
        env={**kept, "PYTHONPATH": str(planted.folder)},
        capture_output=True,
        text=True,
        check=False,
    )
