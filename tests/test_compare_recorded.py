"""`kgprof compare --record` on the command line: two checkouts of a program whose step sleeps, and
what it refuses."""

from __future__ import annotations

import json
import subprocess
import sysconfig
import venv
from pathlib import Path

import pytest

from kgprof import cli
from kgprof.model import InTurn, Profile, Skipped, decode_json
from kgprof.reading import recordings
from kgprof.render import embedded_profile
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
    assert "stops as soon as each limit (step 10 %, evaluation 2 %) is decided" in done.stderr
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
    # Base has its own page, and the comparison's leads to it.
    own = embedded_profile.read(out / "base" / "report.html").profile
    assert own.comparison is None
    assert own.environment.git_commit == found.comparison.base.git_commit
    assert 'href="base/report.html"' in (out / "report.html").read_text("utf-8")
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


MODEL = """
import torch


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = torch.nn.Parameter(torch.ones(4))

    def forward(self, x):
        return (x * self.gain).sin()


layer = torch.compile(Layer(), backend="aot_eager")
x = torch.ones(8, 4)


def step():
    with torch.no_grad():
        return layer(x)
"""
RENAMED = MODEL.replace("Layer", "Scaled").replace("gain", "scale").replace("\n\n\nc", "\n# \nc")
CLONED = MODEL.replace("(x * self.gain).sin()", "(x * self.gain).clone().sin()")
WORK_ONLY = ("--work-only", "--steps", "2", "--warmup", "1", "--device", "cpu", "--no-ci")


@pytest.mark.parametrize(
    ("head", "differs", "said"),
    [
        (RENAMED, False, "OK: the same work in 1 run"),
        (CLONED, True, "OK: what is compiled and run differs (operators, "),
    ],
)
def test_the_work_alone_is_compared_without_a_clock(
    head: str, differs: bool, said: str, tmp_path: Path
) -> None:
    for side, text in (("base", MODEL), ("head", head)):
        (tmp_path / side).mkdir()
        (tmp_path / side / "model.py").write_text(text)
    what = ("--record", "base", "head", "model.py:step", "-o", "out", "--format", "text")

    done = kgprof("compare", *what, *WORK_ONLY, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert said in done.stdout
    report = decode_json((tmp_path / "out" / "report.json").read_bytes(), Profile)
    assert report.comparison is not None
    (run,) = report.comparison.runs
    assert not isinstance(run.work, Skipped)
    assert run.work.differs == differs
    assert not any(metric.time_of for metric in run.metrics if metric.decides)
    if differs:
        first = run.work.differences[0]
        assert first.text == "+ f32[8, 4].clone() -> f32[8, 4]"
        assert first.place is not None
        assert first.place.text == "return (x * self.gain).clone().sin()"


def test_what_another_interpreter_sets_itself_is_named_and_no_line_is(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    pythons = []
    for side, planted in (("base", ""), ("head", "config.assume_static_by_default = False")):
        venv.create(tmp_path / side, symlinks=True)
        (packages,) = (tmp_path / side).glob("lib/python*/site-packages")
        (packages / "planted.py").write_text(f"from torch._dynamo import config\n{planted}\n")
        lines = (sysconfig.get_path("purelib"), "import planted")
        (packages / "planted.pth").write_text("\n".join(lines))
        pythons += ["--python", f"{side}/bin/python"]
    what = ("--record", ".", ".", "model.py:step", "-o", "out", "--format", "text")

    # a process of its own: the tests' servers are of this interpreter
    done = kgprof("compare", *what, *pythons, *WORK_ONLY, cwd=tmp_path, before=("-u",))

    assert done.returncode == 0, done.stderr
    assert "OK: another interpreter with the same versions, same code: " in done.stdout
    said = "a default of torch's is another one: dynamo.assume_static_by_default True -> False"
    assert said in done.stdout
    report = decode_json((tmp_path / "out" / "report.json").read_bytes(), Profile)
    assert report.comparison is not None
    (fact,) = report.comparison.environment
    assert (fact.base, fact.head) == ("base/bin/python", "head/bin/python")


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
        (("a", "b", "--work-only"), 2, "compare runs nothing, so work_only cannot be used"),
        (("a", "b", "--python", "a"), 2, "compare runs nothing, so python cannot be used"),
        (
            ("--record", "HEAD^", ".", "bench/step.py:step", "--python", "nowhere/python"),
            2,
            "--python nowhere/python: no such program",
        ),
        (
            ("--record", "HEAD^", ".", "bench/step.py:step", *("--python", "python3") * 3),
            2,
            "--python was given 3 times",
        ),
        (
            ("--record", "HEAD^", ".", "bench/step.py:step", "--work-only", "--passes", "compile"),
            2,
            "--work-only chooses the passes",
        ),
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
