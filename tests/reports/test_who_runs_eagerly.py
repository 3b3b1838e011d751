"""Programs after public reports of which we know how many calls run eagerly: they are kept beside
the project."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True, kw_only=True)
class Truth:
    program: str
    exit_code: int
    rules: tuple[str, ...]  # of warnings
    says: tuple[str, ...] = ()
    step: bool = True
    options: tuple[str, ...] = ()


NO_GRAPH = "not one compiled graph ran in 20 calls of compiled functions"
TRUTHS = (
    Truth(
        program="1-eager-share-said-zero/r09_layer_key.py",
        exit_code=1,
        rules=("KGP104",),
        says=("80 of its 240 calls since then ran eagerly: layers.8 to layers.11 (Layer)",),
    ),
    Truth(
        program="1-eager-share-said-zero/n11_shared_inner.py",
        exit_code=1,
        rules=("KGP104",),
        says=("80 of its 240 calls since then ran eagerly: heads[8] to heads[11] (Linear)",),
    ),
    Truth(
        program="2-runs-eagerly-and-passes/b07_backward_hook.py",
        exit_code=1,
        rules=("KGP108",),
        says=(NO_GRAPH,),
    ),
    Truth(
        program="2-runs-eagerly-and-passes/b07_backward_hook.py",
        exit_code=5,
        rules=("KGP108",),
        says=(NO_GRAPH,),
        options=("--max", "graph-breaks=1"),
    ),
    Truth(
        program="2-runs-eagerly-and-passes/m04_ddp.py",
        exit_code=1,
        rules=("KGP108",),
        says=("fast (DistributedDataParallel): no graph at all",),
        step=False,
    ),
    Truth(
        program="2-runs-eagerly-and-passes/n02_stance.py",
        exit_code=0,
        rules=("KGP108",),
        says=("f: 14 of 17 calls after warm-up ran eagerly", "eager_on_recompile"),
    ),
    Truth(
        program="5-reset-counted-as-recompile/n01_reset_between.py",
        exit_code=0,
        rules=(),
        step=False,
    ),
)


@pytest.mark.long
@pytest.mark.shared
@pytest.mark.parametrize(
    "truth", TRUTHS, ids=lambda truth: "-".join((Path(truth.program).stem, *truth.options))
)
def test_the_gate_says_who_runs_eagerly(truth: Truth, shared: Path, tmp_path: Path) -> None:
    program = shared / "cases" / "bugs" / truth.program
    workload = f"{program}:step" if truth.step else str(program)
    command = [
        sys.executable,
        "-m",
        "kgprof",
        "check-graphs",
        workload,
        "--output",
        str(tmp_path / "out"),
    ]

    done = subprocess.run(
        [*command, *truth.options],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=tmp_path,
    )
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    warned = sorted(
        finding["rule"] for finding in report["findings"] if finding["level"] == "warning"
    )

    assert (done.returncode, tuple(warned)) == (truth.exit_code, truth.rules), done.stdout
    assert [words for words in truth.says if words not in done.stdout] == []
    assert "wrap_inline" not in done.stdout
