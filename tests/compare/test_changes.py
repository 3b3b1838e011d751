"""Which line of a change a cause is put down to."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec
import pytest

from kgprof.cli import reading
from kgprof.compare import changes, compare
from kgprof.model import Location, Profile, ProjectSource, Skipped
from tests.analysis.compared import finding, profile

BASE = """import torch


class Model:
    def __init__(self):
        self.depth = 3

    def step(self, x):
        return x
"""
HEAD = BASE.replace("self.depth = 3", "self.depth = torch.tensor(3)").replace(
    "return x", "return x * 1"
)


def holding(text: str | Skipped, *, given: Profile | None = None) -> Profile:
    return msgspec.structs.replace(
        given or profile(), sources=(ProjectSource(file="model.py", sha256="", text=text),)
    )


def lines(found: tuple[changes.ChangedLine, ...]) -> list[tuple[str, int, str]]:
    return [(each.place.file, each.place.line, each.place.function) for each in found]


def test_the_sources_of_both_sides_say_which_lines_changed_and_in_which_functions() -> None:
    assert lines(changes.between(holding(BASE), holding(HEAD))) == [
        ("model.py", 6, "Model.__init__"),
        ("model.py", 9, "Model.step"),
    ]
    assert changes.between(holding(BASE), holding(BASE)) == ()
    assert changes.between(holding(Skipped(reason="left out")), holding(HEAD)) == ()


def test_of_lines_that_are_gone_the_one_in_their_place_is_named() -> None:
    without = BASE.replace("        self.depth = 3\n", "        pass\n", 1).replace(
        "import torch\n", ""
    )

    assert lines(changes.between(holding(BASE), holding(without))) == [
        ("model.py", 1, ""),
        ("model.py", 5, "Model.__init__"),
    ]


def test_comments_blank_lines_and_other_files_are_no_cause() -> None:
    diff = (
        "--- a/x.md\n+++ b/x.md\n@@ -1 +1 @@\n-a\n+b\n--- a/y.py\n+++ b/y.py\n@@ "
        "-3,0 +4,3 @@\n+# why\n+\n+y = 1\n"
    )

    assert lines(changes.of_diff(diff)) == [("y.py", 6, "")]


def test_a_changed_line_that_looks_like_the_header_of_a_file_is_a_line() -> None:
    diff = (
        "--- a/y.py\n+++ b/y.py\n@@ -3,3 +3,3 @@\n--- SELECT 1\n+++ z.py\n text\n-x = 1\n+x = 2\n"
    )

    first, second = changes.of_diff(diff)

    assert (first.place.text, first.before) == ("++ z.py", "-- SELECT 1")
    assert (second.place.file, second.place.line) == ("y.py", 5)
    assert second.was is not None
    assert second.was.line == 5


@pytest.mark.parametrize(
    ("names", "line"),
    [(("self.model.depth",), 6), ((), None)],
    ids=["the attribute that is named", "nothing connects them"],
)
def test_one_line_among_others_needs_a_reason(names: tuple[str, ...], line: int | None) -> None:
    other = "--- a/other.py\n+++ b/other.py\n@@ -1,0 +1,1 @@\n+y = 1\n"
    new = msgspec.structs.replace(
        finding("KGP302", message="CPU tensor"), names=names, location=None
    )
    head = msgspec.structs.replace(profile(), findings=(new,))
    diff = "".join(
        (
            other,
            "--- a/model.py\n+++ b/model.py\n@@ -6 +6 @@\n-        self.depth = 3\n+        "
            "self.depth = t(3)\n",
        )
    )

    found = compare(profile(), head, diff=diff).comparison

    assert found is not None
    assert [cause.changed.line if cause.changed else None for cause in found.causes] == [line]


def test_a_place_that_changed_is_its_own_line() -> None:
    place = Location(file="step.py", line=41, function="step")
    head = msgspec.structs.replace(profile(), findings=(finding(message="a new sync"),))
    diff = "--- a/step.py\n+++ b/step.py\n@@ -40,0 +40,2 @@\n+a = 1\n+b = int(x)\n"
    diff += "--- a/z.py\n+++ b/z.py\n@@ -1 +1 @@\n-a\n+b\n"

    found = compare(profile(), head, diff=diff).comparison

    assert found is not None
    assert found.causes[0].location is not None
    assert found.causes[0].location.line == place.line
    assert found.causes[0].changed is not None
    assert (found.causes[0].changed.line, found.causes[0].changed.text) == (41, "b = int(x)")


def test_a_constant_of_another_file_is_found_where_it_is_imported() -> None:
    place = Location(file="step.py", line=41, function="step")
    new = finding(message="a new sync")
    assert new.location is not None
    assert new.location.file.endswith(place.file)
    text = "from shop.settings import DEPTH, WIDTH\n"
    head = msgspec.structs.replace(
        profile(),
        findings=(new,),
        sources=(ProjectSource(file=new.location.file, sha256="", text=text),),
    )
    diff = "".join(
        f"--- a/{file}\n+++ b/{file}\n@@ -1 +1 @@\n-{name} = 1\n+{name} = 2\n"
        for file, name in (
            ("bench.py", "WIDTH"),
            ("shop/settings.py", "OTHER"),
            ("shop/settings.py", "WIDTH"),
        )
    )

    found = compare(profile(), head, diff=diff).comparison

    assert found is not None
    assert found.causes[0].changed is not None
    assert found.causes[0].changed.text == "WIDTH = 2"


# ---------------------------------------------------------------- git


def git(folder: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", "-C", str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def at_commit(commit: str, *, dirty: bool = False) -> Profile:
    environment = msgspec.structs.replace(profile().environment, git_commit=commit, git_dirty=dirty)
    return msgspec.structs.replace(profile(), environment=environment)


def test_git_says_what_changed_between_two_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "init", "-q")
    commits = []
    for text in (BASE, HEAD):
        (tmp_path / "model.py").write_text(text, encoding="utf-8")
        git(tmp_path, "add", ".")
        git(tmp_path, "commit", "-qm", "a change")
        commits.append(git(tmp_path, "rev-parse", "HEAD"))
    monkeypatch.chdir(tmp_path)
    base, head = map(at_commit, commits)

    assert lines(changes.of_diff(reading.diff_between(base, head))) == [
        ("model.py", 6, "__init__"),
        ("model.py", 9, "step"),
    ]
    assert reading.diff_between(base, base) == ""
    assert reading.diff_between(base, at_commit(commits[1], dirty=True)) == ""
    assert reading.diff_between(base, at_commit("0" * 40)) == ""
    assert reading.diff_between(base, at_commit("--output=/tmp/x")) == ""
