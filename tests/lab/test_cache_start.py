"""The first call on another machine, with the caches of this one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kgprof import model as m
from kgprof.lab.cache_start import shipped_cache
from kgprof.record.processes.children import Caches
from kgprof.record.processes.trials import CellTrials

CELL = m.Cell(mode="as-is")
COMPILED = """
import torch

x = torch.randn(64, 64)
function = torch.compile(lambda x: (x.sin() * x.cos()).relu().sum(-1), backend={backend!r})


def step():
    return function(x)
"""


def shipped(tmp_path: Path, backend: str) -> m.ShippedCache | m.Skipped:
    (tmp_path / "program.py").write_text(COMPILED.format(backend=backend), encoding="utf-8")
    options = m.Options(workload=f"{tmp_path / 'program.py'}:step")
    return shipped_cache(trials_of(tmp_path, CELL, options))


def trials_of(tmp_path: Path, cell: m.Cell, options: m.Options) -> CellTrials:
    caches = Caches(folder=tmp_path / "caches")
    return CellTrials(
        options=options, strategy="step", cell=cell, device="cpu", scratch=tmp_path, caches=caches
    )


@pytest.mark.long
def test_the_second_process_compiles_nothing(tmp_path: Path) -> None:
    found = shipped(tmp_path, "inductor")

    assert isinstance(found, m.ShippedCache)
    assert (found.cold.graphs_from_cache, found.cold.graphs_compiled) == (0, 1)
    assert (found.loaded.graphs_from_cache, found.loaded.graphs_compiled) == (1, 0)
    assert found.artifact_bytes > 0
    assert found.loaded.load_s > found.cold.load_s == 0.0


def test_what_cannot_be_cached_is_not_shipped(tmp_path: Path) -> None:
    assert shipped(tmp_path, "eager") == m.Skipped(
        reason="torch packed nothing: no graph of this run is cacheable"
    )


def test_a_process_that_fails_says_how(tmp_path: Path) -> None:
    found = shipped(tmp_path, "no such backend")

    assert isinstance(found, m.Skipped)
    assert found.reason.startswith("the process that packs the caches raised during TRIAL")


def test_its_processes_begin_with_the_variables_of_the_workload(tmp_path: Path) -> None:
    program = (
        "import os, pathlib; "
        "pathlib.Path(__file__).with_suffix('.txt').write_text(os.environ['TORCH_OF_IT'])"
    )
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    trials = trials_of(tmp_path, CELL, m.Options(workload=f"{tmp_path / 'program.py'}:step"))

    shipped_cache(replace(trials, caches=replace(trials.caches, extra={"TORCH_OF_IT": "here"})))

    assert (tmp_path / "program.txt").read_text(encoding="utf-8") == "here"


@pytest.mark.parametrize(
    ("cell", "workload", "why"),
    [
        (m.Cell(mode="default", backend="aot_eager"), "model.py:step", "only Inductor"),
        (m.Cell(mode="default", precision=m.Precision.BF16), "model.py:step", "only Inductor"),
        (CELL, "train.py", "a script has no first call to time"),
    ],
)
def test_what_is_not_tried_says_why(tmp_path: Path, cell: m.Cell, workload: str, why: str) -> None:
    found = shipped_cache(trials_of(tmp_path, cell, m.Options(workload=workload)))

    assert isinstance(found, m.Skipped)
    assert found.reason.startswith(why)
