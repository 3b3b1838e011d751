"""Programs after public reports that are kept beside the project: what the gate says of each.

Programs of the same kinds in other shapes are in ``programs/``.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

SAID_APART = ("10-", "11-")  # wrong results, and torch's warnings: the gate does not look for them
NO_GRAPH = "not one compiled graph ran in 20 calls of compiled functions"


@dataclass(frozen=True, kw_only=True)
class Truth:
    program: str
    exit_code: int
    rules: tuple[str, ...] = ()  # of warnings and errors
    says: tuple[str, ...] = ()
    never_says: tuple[str, ...] = ()
    step: bool = True
    options: tuple[str, ...] = ()


TRUTHS = (
    Truth(
        program="1-eager-share-said-zero/r09_layer_key.py",
        exit_code=1,
        rules=("KGP104",),
        says=(
            "80 of its 240 calls in step 0 and later ran eagerly: layers.8 to layers.11 (Layer)",
        ),
    ),
    Truth(
        program="1-eager-share-said-zero/n11_shared_inner.py",
        exit_code=1,
        rules=("KGP104",),
        says=(
            "80 of its 240 calls in step 0 and later ran eagerly: heads[8] to heads[11] (Linear)",
            "to try: torch._dynamo.config.recompile_limit = 12",
        ),
    ),
    Truth(
        program="2-runs-eagerly-and-passes/b07_backward_hook.py",
        exit_code=1,
        rules=("KGP101", "KGP108"),
        says=(NO_GRAPH, "registered in b07_backward_hook.py:12"),
        never_says=("compiled as a whole",),
    ),
    Truth(
        program="2-runs-eagerly-and-passes/b07_backward_hook.py",
        exit_code=5,
        rules=("KGP101", "KGP108"),
        says=(NO_GRAPH, "registered in b07_backward_hook.py:12"),
        never_says=("compiled as a whole",),
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
        program="3-compiled-at-import-is-not-seen/h7_warm_at_import.py",
        exit_code=0,
        never_says=("nothing was compiled", "eager code"),
    ),
    Truth(
        program="3-compiled-at-import-is-not-seen/n03_buckets.py",
        exit_code=1,
        rules=("KGP104",),
        says=(
            "recompiled 7 times before the first step",
            "44 of its 72 calls before the first step and later",
        ),
        never_says=("nothing was compiled",),
    ),
    Truth(
        program="3-compiled-at-import-is-not-seen/n08_worker.py",
        exit_code=5,
        says=("n08_worker.py:7", "2 worker processes", "num_workers=0"),
        never_says=("write model = torch.compile(model)",),
        step=False,
    ),
    Truth(
        program="3-compiled-at-import-is-not-seen/v09_break_at_import.py",
        exit_code=1,
        rules=("KGP101", "KGP101"),
        says=("v09_break_at_import.py:13: KGP101 Tensor.item", ":13: KGP101 print"),
        never_says=("OK: gate passed",),
    ),
    Truth(
        program="4-the-instrument-changes-the-program/n09_subclass_counter.py",
        exit_code=1,
        rules=("KGP105",),
        says=("recompiled 7 times", "12 of its 12 calls in step 8 and later ran eagerly"),
        never_says=("KGP101", "KGP102"),
    ),
    Truth(
        program="4-the-instrument-changes-the-program/v06_quant_subclass.py",
        exit_code=0,
        never_says=("KGP107",),
    ),
    Truth(
        program="5-reset-counted-as-recompile/n01_reset_between.py",
        exit_code=0,
        never_says=("recompiled",),
        step=False,
    ),
    Truth(
        program="6-words-of-the-guard/b03_random.py",
        exit_code=1,
        rules=("KGP101",),
        says=("b03_random.py:9: KGP101 Random.random", "because of the graph break at line 9"),
        never_says=("___stack",),
    ),
    Truth(
        program="6-words-of-the-guard/n10_kwargs_order.py",
        exit_code=1,
        rules=("KGP103",),
        says=("kw has 'labels' and 'scale' in some calls and not in others",),
        never_says=("got no 'scale'",),
    ),
    Truth(
        program="6-words-of-the-guard/r08_mask_closure.py",
        exit_code=0,
        says=("value of w, which mask_fn closes over: expected 1, used in line 18",),
        never_says=("__closure__",),
    ),
    Truth(
        program="7-cause-and-fix-that-torch-says-are-lost/b05_lstm.py",
        exit_code=1,
        rules=("KGP102",),
        says=("b05_lstm.py:15: KGP102", "torch._dynamo.config.allow_rnn=True"),
    ),
    Truth(
        program="7-cause-and-fix-that-torch-says-are-lost/r09_hint.py",
        exit_code=1,
        rules=("KGP104",),
        says=(
            "value of self.index: expected 1, got 2, used in line 18",
            "to try: torch._dynamo.config.allow_unspec_int_on_nn_module = True",
        ),
    ),
    Truth(
        program="7-cause-and-fix-that-torch-says-are-lost/r13_mark_dynamic_conflict.py",
        exit_code=4,
        rules=("KGP107",),
        says=("r13_mark_dynamic_conflict.py:10: KGP107", "maybe_mark_dynamic(x, 0)"),
    ),
    Truth(
        program="8-gate-fails-without-remedy/h2_compiled_optimizer.py",
        exit_code=0,
        says=("2 breaks inside torch, made on purpose, not counted",),
        never_says=("over the budget",),
        step=False,
    ),
    Truth(
        program="9-one-cause-twice/b15_sparse.py",
        exit_code=1,
        rules=("KGP102",),
        says=("b15_sparse.py:12: KGP102", "Attempted to wrap sparse Tensor"),
        never_says=("KGP101",),
    ),
)


def ran(*command: str | Path, folder: Path, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        input=given,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=folder,
    )


@pytest.mark.long
@pytest.mark.shared
@pytest.mark.parametrize(
    "truth", TRUTHS, ids=lambda truth: "-".join((Path(truth.program).stem, *truth.options))
)
def test_what_the_gate_says_is_true(truth: Truth, shared: Path, tmp_path: Path) -> None:
    program = shared / "cases" / "bugs" / truth.program
    workload = f"{program}:step" if truth.step else str(program)
    options = ("--output", tmp_path / "out", *truth.options)

    done = ran("-m", "kgprof", "check-graphs", workload, *options, folder=tmp_path)
    report = json.loads((tmp_path / "out" / "report.json").read_text("utf-8"))
    severe = [each["rule"] for each in report["findings"] if each["level"] != "note"]

    assert (done.returncode, tuple(sorted(severe))) == (truth.exit_code, truth.rules), done.stdout
    assert [words for words in truth.says if words not in done.stdout] == []
    never = ("wrap_inline", *truth.never_says)
    assert [words for words in never if words in done.stdout] == []


@pytest.mark.shared
def test_each_program_that_is_kept_has_its_truth_here(shared: Path) -> None:
    kept = (shared / "cases" / "bugs").glob("*/*.py")
    expected = {
        f"{path.parent.name}/{path.name}"
        for path in kept
        if not path.parent.name.startswith(SAID_APART)
    }

    assert expected == {truth.program for truth in TRUTHS}


# ---------------------------------------------------------------- programs that kgprof ended


@pytest.mark.long
@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "given", "prints"),
    [("lazy_linear_eager", "", "ok True"), ("stdin_reader", "30\n", "steps 30")],
)
def test_a_profile_runs_a_program_as_python_does(
    name: str, given: str, prints: str, shared: Path, tmp_path: Path
) -> None:
    program = shared / "cases" / "real" / f"{name}.py"
    arguments = ("--passes", "compile,memory", "-o", tmp_path / "out")

    plain = ran(program, folder=tmp_path, given=given)
    done = ran("-m", "kgprof", "profile", program, *arguments, folder=tmp_path, given=given)

    assert (plain.returncode, done.returncode) == (0, 0), done.stdout + done.stderr
    assert prints in plain.stdout
    assert prints in done.stdout + done.stderr


@pytest.mark.shared
def test_a_block_of_a_module_counts_its_steps(shared: Path, tmp_path: Path) -> None:
    done = ran(shared / "cases" / "real" / "watch_module_block.py", folder=tmp_path)

    assert done.returncode == 0, done.stderr
    assert "in 3 steps" in done.stdout
