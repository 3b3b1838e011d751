"""The planted regressions can still be planted, and each is a change of the evaluator alone."""

from __future__ import annotations

import subprocess

from tests.gathering import for_all
from tests.regressions.planted import EVALUATOR, ROOT, Regression, regressions

KINDS = frozenset(  # of model.Cause
    (
        "finding",
        "kernel",
        "launches",
        "copies",
        "host",
        "steps",
        "cuda-graphs",
        "results",
        "compile",
        "memory",
        "setting",
    )
)
MODES = frozenset({"fused.default", "fused.reduce-overhead"})


def git_apply(regression: Regression, *options: str) -> subprocess.CompletedProcess[str]:
    command = ["git", "apply", *options, str(regression.patch)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_there_are_twenty_of_every_kind() -> None:
    planted = regressions()

    assert len(planted) == 20
    # which only ever goes with another
    assert {regression.truth.kind for regression in planted} == KINDS - {"setting"}
    assert {reading.kind for regression in planted for reading in regression.truth.accept} <= KINDS
    assert {regression.truth.run for regression in planted} == MODES


@for_all(regressions(), lambda regression: regression.name)
def test_the_patch_applies_to_this_tree(regression: Regression) -> None:
    checked = git_apply(regression, "--check")
    changes = git_apply(regression, "--numstat").stdout.splitlines()

    assert (checked.returncode, checked.stderr) == (0, "")
    assert changes
    assert all(line.split("\t")[2].startswith(EVALUATOR) for line in changes)


@for_all(regressions(), lambda regression: regression.name)
def test_the_truth_names_a_place_that_the_patched_tree_has(regression: Regression) -> None:
    truth = regression.truth
    for reading in (truth, *truth.accept):
        added = regression.patch.read_text(encoding="utf-8")
        standing = (ROOT / reading.file).read_text(encoding="utf-8") if reading.file else added
        assert f"def {reading.function}(" in standing + added or not reading.function
        assert (reading.rule != "") == (reading.kind == "finding")
