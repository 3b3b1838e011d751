"""`kgprof bisect` on the command line: a repository of eight commits, one of which clones, and what
it refuses."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from kgprof import cli
from kgprof import model as m
from kgprof.cli.bisecting import Search
from kgprof.cli.comparing import Comparing
from kgprof.cli.options import Context
from kgprof.compare import CompareSettings
from kgprof.errors import UsageError
from kgprof.record.ground import commits
from kgprof.record.processes import in_turn
from tests.test_compare_recorded import CLONED, MODEL, git
from tests.test_scripts import kgprof

QUICK = ("--steps", "2", "--warmup", "1", "--device", "cpu", "--no-ci")
RENAMED = MODEL.replace("gain", "scale")
CLONED_HERE = CLONED.replace("gain", "scale")
HISTORY = (
    ("begin", MODEL),
    ("rename", RENAMED),
    ("comment", RENAMED + "# done\n"),
    ("break it", RENAMED.replace("import torch", "import torch, nobody_has_this")),
    ("repair it", RENAMED),
    ("be careful", CLONED_HERE),
    ("say more", CLONED_HERE + "# ready\n"),
    ("move lines", "# A layer.\n" + CLONED_HERE),
)
BROKEN, BAD = 3, 5  # places in HISTORY


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """In its subfolder the program, whose folder has a space in its name."""
    folder = tmp_path / "repository"
    (folder / "my models").mkdir(parents=True)
    git(folder, "init", "-q")
    for subject, text in HISTORY:
        (folder / "my models" / "model.py").write_text(text)
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", subject)
    return folder


def commits_of(folder: Path) -> list[str]:
    listed = subprocess.run(
        ["git", "rev-list", "--reverse", "HEAD"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return listed.stdout.split()


def all_files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_commit_that_clones_is_found_and_nothing_is_recorded_twice(repository: Path) -> None:
    """In a folder of the repository, with changes that nobody committed."""
    (repository / "my models" / "model.py").write_text("not committed (")
    before = all_files(repository)
    all_commits = commits_of(repository)
    out = repository.parent / "out"
    command = ("bisect", "HEAD~6", "HEAD~2", "my models/model.py:step", *QUICK, "-o", out)

    done = kgprof(*map(str, command), cwd=repository / "my models")

    assert done.returncode == 0, done.stderr
    assert f"OK: {all_commits[BAD][:12]} be careful is the first bad commit" in done.stdout
    assert "my models/model.py:11 return (x * self.scale).clone().sin()" in done.stdout
    assert "\n+        return (x * self.scale).clone().sin()\n" in done.stdout
    assert "recording 1 of about 4: " in done.stderr
    report = json.loads((out / "report.json").read_text())
    found = report["comparison"]["bisect"]
    tried = {each["commit"]: each["verdict"] for each in found["tried"]}
    assert found["remaining"] == [all_commits[BAD]]
    assert found["files"] == ["my models/model.py"]
    assert report["comparison"]["base"]["source"] == all_commits[BAD - 1][:12]
    assert len(tried) == len(found["tried"])
    # halfway lies the one that does not run, and the search goes on beside it
    skipped = tried.pop(all_commits[BROKEN])
    assert (skipped, len(tried) <= 4) == ("skipped", True)
    assert set(tried) >= {all_commits[1], all_commits[4], all_commits[BAD]}
    assert all(
        verdict == ("bad" if commit == all_commits[BAD] else "good")
        for commit, verdict in tried.items()
    )
    assert all_files(repository) == before
    assert not (repository / ".git" / "worktrees").exists()

    again = kgprof(*map(str, command), "--format", "json", cwd=repository / "my models")

    assert again.returncode == 0
    assert "recording" not in again.stderr.replace(str(out), "")
    assert json.loads(again.stdout)["comparison"]["bisect"] == found


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("HEAD", "@", "a.py:step"), 2, "GOOD HEAD and BAD @ are one commit"),
        (("HEAD", "HEAD~1", "a.py:step"), 2, "GOOD HEAD is not an ancestor of BAD HEAD~1"),
        ((".", "HEAD", "a.py:step"), 2, "GOOD . is not a commit of a git work tree here"),
        (("HEAD~1", "nowhere", "a.py:step"), 2, "BAD nowhere is not a commit of a git work tree"),
        (("HEAD~1", "HEAD", "a.py"), 2, "bisect does not work for a script (a.py)"),
        (("HEAD~1", "HEAD", "/a.py:step"), 2, "/a.py is one file, whichever side is recorded"),
        (("HEAD~1", "HEAD", "a.py:step"), 2, "BAD: a.py: file not found"),
        (("HEAD~1", "HEAD"), 2, "no workload is named"),
    ],
)
def test_what_has_no_first_bad_commit_is_refused(
    args: tuple[str, ...],
    code: int,
    words: str,
    repository: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(repository)

    assert cli.run(["bisect", *args]) == code
    assert words in capsys.readouterr().err
    assert not (repository / "reports").exists()


def test_a_workload_that_dies_in_bad_is_no_verdict(repository: Path) -> None:
    (repository / "new.py").write_text("raise ValueError\n\ndef step():\n    pass\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "new")

    done = kgprof("bisect", "HEAD~1", "HEAD", "new.py:step", *QUICK, cwd=repository)

    assert done.returncode == 4, done.stderr
    assert "BAD: " in done.stderr


@pytest.mark.parametrize(("end", "code"), [("GOOD", 5), ("BAD", 2)])
def test_a_workload_that_an_end_lacks(end: str, code: int) -> None:
    named = in_turn.of_side(end, UsageError("a.py: file not found", "it may be new"))

    assert (named.exit_code, named.message) == (code, f"{end}: a.py: file not found")


def test_pairs_that_ended_by_other_limits_are_recorded_again() -> None:
    """Where the interval includes the limit, more rounds with the same -o narrow it."""
    comparing = Comparing(CompareSettings(), (), (), Context())

    def made_for(rounds: int, *, timed: bool) -> bytes:
        search = Search(comparing, "a.py:step", m.Options, b"[]", timed, rounds, False)
        return search._made_for()

    assert made_for(10, timed=True) != made_for(20, timed=True)
    assert made_for(10, timed=False) == made_for(20, timed=False)


# ---------------------------------------------------------------- git


def test_merges_are_halved_as_git_does(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(repository, "checkout", "-q", "-b", "side", "HEAD~4")
    for number in range(3):
        (repository / f"side_{number}").write_text("")
        git(repository, "add", "-A")
        git(repository, "commit", "-qm", f"side {number}")
    git(repository, "checkout", "-q", "-")
    git(repository, "merge", "-q", "--no-ff", "-m", "merge", "side")
    monkeypatch.chdir(repository)
    good, bad = commits.ends("HEAD~4", "HEAD")

    halving = commits.halving(bad, [good])

    assert len(halving) == len(set(halving)) == 7  # three on either side, and the merge
    assert bad in halving
    assert good not in halving
    assert commits.halving(bad, [good, commits.commit_of("side"), commits.commit_of("HEAD^1")]) == [
        bad
    ]


def test_the_change_of_a_line_is_only_that_of_this_commit(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository / "my models")
    place = "11,11:my models/model.py"
    bad = commits.commit_of("HEAD~2")

    assert "+        return (x * self.scale).clone().sin()" in commits.change_of_line(bad, place)
    assert commits.change_of_line(commits.commit_of("HEAD~1"), place) == ""
    assert commits.change_of_line(bad, "900,900:my models/model.py") == ""
    assert commits.changed_files(bad) == ("my models/model.py",)
