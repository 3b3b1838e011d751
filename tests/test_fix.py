"""`kgprof fix` on programs of an owner's: what it refuses before a second start, what it leaves
behind, what it says."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec
import pytest

from kgprof import model as m
from kgprof.cli import fixing
from kgprof.lab.fix.trees import state_of
from tests import commands
from tests.record import handmade

STEP = """
import torch

x = torch.ones(8)


def step():
    return (x * 2).sum()
"""
POINTWISE = """
import torch

x = torch.linspace(0, 1, 1 << 18)


def step():
    y = x
    for _ in range(8):
        y = (y * 1.01 + 0.1).abs().clamp(max=3.0) - 0.05
    return y.sum()
"""


def fix(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return commands.run("fix", *args, cwd=folder, environment=commands.without_settings())


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "model.py").write_text(STEP)
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    return folder


@pytest.mark.parametrize(
    ("workload", "code", "words"),
    [
        ("train.py", 5, "fix cannot step through a script (train.py)"),
        ("linkpred", 2, "linkpred is built in"),
        ("gone.py:step", 2, "gone.py: file not found"),
        ("model.py:train", 2, "model.py has no 'train'"),
        ("ignored.py:step", 2, "git ignores"),
    ],
)
def test_what_has_no_file_or_step_is_refused_at_once(
    project: Path, workload: str, code: int, words: str
) -> None:
    (project / "train.py").write_text("print('a script')\n")
    (project / "ignored.py").write_text(STEP)
    (project / ".gitignore").write_text("ignored.py\n")

    done = fix(project, workload)

    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert done.stderr.count("error:") == 1


def test_apply_needs_a_file_that_git_can_give_back(project: Path) -> None:
    done = fix(project, "model.py:step", "--apply")

    assert done.returncode == 2
    assert "--apply changes model.py, and git does not have it as it is" in done.stderr


def test_apply_refuses_a_file_that_differs_from_what_git_has(project: Path) -> None:
    run = ["git", "-C", str(project), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*run, "add", "model.py"], check=True)
    subprocess.run([*run, "commit", "-qm", "one"], check=True)
    subprocess.run([*run, "update-index", "--assume-unchanged", "model.py"], check=True)
    (project / "model.py").write_text(STEP + "# mine\n")

    assert fix(project, "model.py:step", "--apply").returncode == 2
    assert (project / "model.py").read_text().endswith("# mine\n")


def test_several_strategies_are_refused(project: Path) -> None:
    (project / "model.py").write_text(
        STEP + "\n\nclass Both:\n    strategies = {'a': step, 'b': step}\n\n\nboth = Both()\n"
    )

    done = fix(project, "model.py:both")

    assert done.returncode == 2, done.stderr
    assert "has several strategies (a, b)" in done.stderr


def test_a_program_that_writes_is_started_once_and_its_folder_is_as_before(project: Path) -> None:
    (project / "model.py").write_text(
        STEP.replace("    return", "    open('log.csv', 'a').write('1')\n    return")
    )
    before = state_of(project)

    done = fix(project, "model.py:step", "-o", str(project.parent / "out"))

    assert done.returncode == 2, done.stderr
    assert "it is not safe to start model.py:step again and again: model.py:8 writes log.csv" in (
        done.stderr
    )
    assert "makes log.csv" not in done.stderr
    assert "--again-is-safe" in done.stderr
    assert done.stdout == ""
    assert state_of(project) == before
    assert not (project.parent / "out").exists()


def test_what_a_program_did_before_it_failed_is_said(project: Path) -> None:
    (project / "model.py").write_text(
        STEP.replace("    return", "    open('log.csv', 'a').close()\n    return None.sum")
    )

    done = fix(project, "model.py:step")

    assert done.returncode == 4
    assert "AttributeError" in done.stderr
    assert "; before that: model.py:8 writes log.csv" in done.stderr


def test_a_program_that_fails_as_it_is_ends_with_4(project: Path) -> None:
    (project / "model.py").write_text(STEP.replace("(x * 2)", "(x * torch.ones(3))"))

    done = fix(project, "model.py:step")

    assert done.returncode == 4
    assert "RuntimeError" in done.stderr
    assert done.stderr.count("error:") == 1


def test_code_is_left_out_where_no_source_may_be_in_the_result() -> None:
    trial = m.LeverTrial(
        lever="a",
        says="b",
        code="secret()",
        changes=m.Changes.NOTHING,
        kept=True,
        results=m.Results.SAME,
        gain=m.Skipped("not timed"),
    )
    found = m.Fix(
        schema_version=1,
        created_utc="",
        command=(),
        workload="a.py:step",
        environment=handmade.ENVIRONMENT,
        facts=m.StepFacts(device="cpu"),
        trials=(trial,),
        patch="+secret()",
    )

    shown = m.encode_json(fixing._without_code(found)).decode()

    assert "secret()" not in shown
    assert "fix.patch" in shown


@pytest.mark.long
def test_a_chain_of_operators_is_compiled_and_the_patch_is_what_was_measured(
    project: Path, tmp_path: Path
) -> None:
    (project / "model.py").write_text(POINTWISE)
    before = state_of(project)
    out = tmp_path / "out"

    done = fix(project, "model.py:step", "--minutes", "8", "-o", str(out))

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(out / "fix.patch")
    found = msgspec.json.decode((out / "fix.json").read_bytes(), type=m.Fix)
    assert "compile-step" in {each.lever for each in found.trials if each.kept}
    assert isinstance(found.gain, m.Gain)
    assert found.gain.high < 0.97
    assert found.patch == (out / "fix.patch").read_text()
    assert state_of(project) == before
    applied = subprocess.run(["git", "apply", str(out / "fix.patch")], cwd=project, check=False)
    assert applied.returncode == 0
    assert "torch.compile" in (project / "model.py").read_text()
