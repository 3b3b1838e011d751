"""`kgprof check-graphs` of modules and objects that compile while they are imported: what their
steps run is judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import commands

PACKAGE = {
    "__init__.py": "",
    "nets.py": """
import torch

rows = torch.arange(12.0).reshape(4, 3)


@torch.compile(backend="eager")
def centred(rows):
    return rows - rows.mean(0)


@torch.compile(backend="eager")
def noisy(rows):
    shifted = rows + 1
    torch._dynamo.graph_break()
    return shifted.square()


for function in (centred, noisy):
    function(rows)
""",
    "lengths.py": """
import torch


@torch.compile(backend="eager", dynamic=False)
def summed(rows):
    return rows.sum(0)


class Reduced:
    def step(self):
        return summed(torch.ones(11, 3))


for length in range(2, 12):
    summed(torch.ones(length, 3))
reduced = Reduced()
""",
    "jobs.py": """
import torch

from served.nets import centred, noisy, rows


class Jobs:
    strategies = {
        "whole": lambda: centred(rows),
        "broken": lambda: noisy(rows),
        "plain": lambda: rows * 2,
    }


jobs = Jobs()


class Nested:
    @staticmethod
    def step():
        return centred(rows)


def broken():
    return noisy(rows)
""",
}


def check(folder: Path, workload: str, *args: str) -> tuple[int, str]:
    for name, text in PACKAGE.items():
        file = folder / "served" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    quick = ("--steps", "4", "--backend", "eager", "-o", "out", "--quiet")
    done = commands.run(
        *("check-graphs", workload, *quick, *args),
        cwd=folder,
        environment=commands.without_settings(),
    )
    return done.returncode, done.stdout + done.stderr


def test_each_strategy_is_judged_by_the_code_that_it_runs(tmp_path: Path) -> None:
    code, words = check(tmp_path, "served.jobs:jobs")

    findings = [line for line in words.splitlines() if "KGP10" in line]
    assert code == 1
    assert len(findings) == 1
    assert "KGP101" in findings[0]
    assert "[broken.as-is]" in findings[0]
    assert "plain.as-is: not one compiled graph ran in 2 calls of compiled functions" in words
    assert "nothing was compiled" not in words


@pytest.mark.parametrize(
    ("workload", "code", "word"),
    [
        pytest.param("served.jobs:Nested.step", 0, "OK: gate passed", id="nested"),
        pytest.param("served.jobs:broken", 1, "graph_break breaks the graph in noisy", id="broken"),
        pytest.param(
            "served.lengths:reduced",
            1,
            "recompiled 7 times before the first step",
            id="at its limit",
        ),
    ],
)
def test_a_function_of_a_module_that_compiled_before(
    tmp_path: Path, workload: str, code: int, word: str
) -> None:
    ended, words = check(tmp_path, workload)

    assert ended == code, words
    assert word in words
    assert "nothing was compiled" not in words
    assert "call -1" not in words
