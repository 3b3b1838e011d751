"""A short script that compiles is timed once more with compiling switched off."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests import commands

SLOWER_COMPILED = """
import time

import torch


def slow(graph, inputs):
    def run(*values):
        time.sleep(0.01)
        return graph(*values)

    return run


double = torch.compile(lambda x: 2 * x, backend=slow)
BEFORE
for _ in range(14):
    double(torch.ones(3))
    INSIDE
    time.sleep(0.002)
"""


def profiled(tmp_path: Path, before: str = "", inside: str = "") -> dict[str, Any]:
    program = SLOWER_COMPILED.replace("BEFORE", before).replace("INSIDE", inside)
    (tmp_path / "train.py").write_text(program)
    command = ("profile", "train.py", "-o", "out")
    done = commands.run(*command, cwd=tmp_path, environment=commands.without_settings())
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads((tmp_path / "out" / "report.json").read_text())
    return report


def test_compiled_code_that_is_slower_is_said_to_be(tmp_path: Path) -> None:
    report = profiled(tmp_path)

    (run,) = report["runs"]
    found = run["economics"]
    assert found["compiled_time"]["median"] > 9_000
    assert 2_000 < found["eager_time"]["median"] < found["compiled_time"]["median"]
    # beside busy processes
    assert found["verdict"] in ("never", "not decided", "not observed")
    assert found["verdict"] != "not observed" or "other processes used" in found["text"]
    findings = [each for each in report["findings"] if each["rule"] == "KGP603"]
    assert len(findings) == (found["verdict"] == "never")
    assert run["exit"]["outcome"] == "ok"


@pytest.mark.parametrize(
    ("before", "inside", "why"),
    [
        ('torch.compiler.set_stance("default")', "", "torch compiled all the same"),
        (
            "",
            'assert torch._dynamo.utils.counters["stats"], "nothing was compiled"',
            "run again with compiling switched off, the program",
        ),
    ],
)
def test_a_program_that_does_not_run_eagerly_is_not_compared_and_ends_as_before(
    tmp_path: Path, before: str, inside: str, why: str
) -> None:
    (run,) = profiled(tmp_path, before, inside)["runs"]

    assert run["economics"]["kind"] == "skipped"
    assert why in run["economics"]["reason"]
    assert run["exit"]["outcome"] == "ok"
