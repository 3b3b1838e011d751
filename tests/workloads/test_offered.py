"""What may be meant in a folder where no workload is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgprof.workloads import offered as module
from kgprof.workloads.offered import has_the_example, workloads_in

STEP = """
import torch

@torch.compile
def doubled(x):
    return x * 2

def step():
    doubled(torch.ones(2))
"""
SCRIPT = "import torch\nmodel = torch.compile(torch.nn.Linear(2, 2))\nmodel(torch.ones(2))\n"


def put(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def test_functions_that_the_file_never_calls_and_scripts_are_offered(tmp_path: Path) -> None:
    put(tmp_path, model=STEP, train=SCRIPT, eager="import torch\n", bench__run=SCRIPT)

    assert workloads_in(tmp_path) == ["model.py:step", "train.py", "bench/run.py"]


def test_what_is_no_source_of_the_projects_is_not_offered(tmp_path: Path) -> None:
    put(tmp_path, tests__test_model=STEP, lib__site_packages__torch_like=STEP)
    (tmp_path / "lib" / "site_packages").rename(tmp_path / "lib" / "site-packages")
    put(tmp_path, env__a=STEP)
    (tmp_path / "env" / "pyvenv.cfg").write_text("")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "a.py").write_text(STEP)
    (tmp_path / "binary.py").write_bytes(b"\xfftorch.compile(f)")
    (tmp_path / "link.py").symlink_to("/dev/zero")
    put(tmp_path, broken="torch.compile(", layers="import torch\nf = torch.compile(abs)\n")

    assert workloads_in(tmp_path) == []


def test_a_few_are_offered_of_many_and_not_every_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, **{f"a{number}": SCRIPT for number in range(9)})

    assert workloads_in(tmp_path) == [f"a{number}.py" for number in range(module.MOST)]
    monkeypatch.setattr(module, "_LOOKED_AT", 2)
    assert workloads_in(tmp_path) == ["a0.py", "a1.py"]


def test_kgprofs_own_checkout_is_known_by_its_example(tmp_path: Path) -> None:
    assert has_the_example(Path(__file__).parents[2])
    assert not has_the_example(tmp_path)
