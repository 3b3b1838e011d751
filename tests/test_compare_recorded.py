"""`kgprof compare --record` on the command line: two checkouts of a program whose step sleeps, and
what it refuses."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from kgprof import cli
from kgprof.model import InTurn, Profile, decode_json
from kgprof.reading import recordings
from tests.test_scripts import kgprof

STEP = """
import time
from slow import SECONDS

def step():
    time.sleep(SECONDS)
"""
QUICK = (
    "--passes",
    "timing",
    "--steps",
    "4",
    "--device",
    "cpu",
    "--no-ci",
    "--max-regression",
    "step=10%",
)


def git(folder: Path, *args: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", *who, *args], cwd=folder, capture_output=True, check=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Of two commits, the second of which sleeps four times as long."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "bench").mkdir()
    (folder / "src").mkdir()
    (folder / "bench" / "step.py").write_text(STEP)
    for seconds in (0.01, 0.04):
        (folder / "src" / "slow.py").write_text(f"SECONDS = {seconds}\n")
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", str(seconds))
    return folder


def test_the_commit_that_sleeps_longer_is_a_regression(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the step imports lies in each checkout's own src/."""
    git(repository, "worktree", "add", "--detach", "../faster", "HEAD^")
    out = repository.parent / "out"

    done = kgprof(
        *(
            "compare",
            "--record",
            "../faster",
            "HEAD",
            "bench/step.py:step",
            "--rounds",
            "2",
            *QUICK,
            "-o",
            "../out",
        ),
        cwd=repository,
    )

    assert (done.returncode, done.stdout) == (1, "../out/report.html\n"), done.stderr
    assert "stops as soon as each limit (step 10 %, evaluation 5 %) is decided" in done.stderr
    assert "step.as-is: after 2 pairs: step " in done.stderr
    found = decode_json((out / "report.json").read_bytes(), Profile)
    assert found.comparison is not None
    assert isinstance(found.comparison.in_turn, InTurn)
    (step,) = (metric for metric in found.comparison.runs[0].metrics if metric.name == "step")
    assert (step.verdict, step.base_rounds, step.head_rounds) == ("worse", 2, 2)
    assert step.ratio == pytest.approx(4.0, rel=0.2)
    assert [found.comparison.base.source, found.comparison.head.source] == ["../faster", "HEAD"]
    assert found.comparison.base.git_commit != found.comparison.head.git_commit
    assert [path.name for path in sorted(out.iterdir())] == [
        "base",
        "recording",
        "report.html",
        "report.json",
    ]
    # Nothing is left of the temporary work tree, and both Recordings can be compared once more.
    trees = subprocess.run(
        ["git", "worktree", "list"], cwd=repository, capture_output=True, text=True, check=True
    )
    assert len(trees.stdout.splitlines()) == 2
    assert recordings.load(out / "base").header.in_turn is not None
    assert (
        cli.run(
            [
                "compare",
                str(out / "base"),
                str(out),
                "--format",
                "json",
                "--max-regression",
                "step=10%",
            ]
        )
        == 1
    )
    again = json.loads(capsys.readouterr().out)
    assert again["comparison"]["runs"][0]["metrics"][0]["ratio"] == step.ratio


# ---------------------------------------------------------------- what it refuses


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (
            ("--record", "nowhere", "HEAD", "bench/step.py:step"),
            2,
            "BASE nowhere is neither a folder nor a commit",
        ),
        (
            ("--record", "HEAD", "nowhere", "bench/step.py:step"),
            2,
            "HEAD nowhere is neither a folder nor a commit",
        ),
        (
            ("--record", "HEAD^", ".", "new.py:step"),
            5,
            "BASE has no such workload: new.py: file not found",
        ),
        (("--record", "HEAD^", "HEAD", "new.py:step"), 2, "HEAD: new.py: file not found"),
        (
            ("--record", "HEAD^", ".", "bench/step.py"),
            2,
            "--record does not work for a script (bench/step.py)",
        ),
        (
            ("--record", "HEAD^", ".", "/step.py:step"),
            2,
            "/step.py is one file, whichever side is recorded",
        ),
        (("--record", "HEAD^"), 2, "--record needs BASE HEAD [WORKLOAD], got 1 arguments"),
        (
            ("--record", "HEAD^", ".", "bench/step.py:step", "more"),
            2,
            "--record needs BASE HEAD [WORKLOAD], got 4",
        ),
        (("a", "b", "--rounds", "5"), 2, "compare runs nothing, so rounds cannot be used"),
        (("a", "b", "--", "--queries", "5"), 2, "compare runs nothing, so -- cannot be used"),
        (("a",), 2, "compare needs BASE and HEAD"),
        (
            ("--record", "HEAD^", ".", "bench/step.py:step", "--rounds", "1"),
            2,
            "1 is not in the range",
        ),
        (
            ("--record", "HEAD^", ".", "bench/step.py:step", "-o", "taken"),
            2,
            "taken/base already exists and is not",
        ),
    ],
)
def test_what_cannot_be_recorded_in_turn_is_refused_before_anything_runs(
    args: tuple[str, ...],
    code: int,
    words: str,
    repository: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(repository)
    (repository / "new.py").write_text(STEP)  # in the folder, in no commit
    (repository / "taken" / "base").mkdir(parents=True)

    assert cli.run(["compare", *args]) == code

    said = capsys.readouterr()
    assert said.out == ""
    assert words in said.err
    assert said.err.count("kgprof: error:") == 1
    assert not (repository / "reports").exists()
