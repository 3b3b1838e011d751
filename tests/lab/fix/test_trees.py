"""Copies of an owner's files, and what a start changed in one."""

import subprocess
from pathlib import Path

import pytest

from kgprof.errors import UsageError
from kgprof.lab.fix import trees
from kgprof.lab.fix.trees import changes_between, state_of, tree_of


def git(folder: Path, *args: str) -> None:
    subprocess.run(["git", "-C", str(folder), *args], check=True, capture_output=True)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "model").mkdir(parents=True)
    (folder / "train.py").write_text("step = print\n")
    (folder / "model" / "net.py").write_text("x = 1\n")
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "train.pyc").write_bytes(b"0")
    return folder


def test_without_git_everything_below_the_files_folder_is_copied(
    program: Path, tmp_path: Path
) -> None:
    tree = tree_of(program / "train.py")

    copied = tree.copy(tmp_path / "copy")

    assert tree.files == ("model/net.py", "train.py")
    assert sorted(state_of(copied)) == ["model/net.py", "train.py"]


def test_of_a_repository_what_git_ignores_is_left_out(program: Path, tmp_path: Path) -> None:
    (program / ".gitignore").write_text("*.pt\n")
    (program / "weights.pt").write_bytes(b"w")
    (program / "gone.py").write_text("")
    git(program, "init", "-q")
    git(program, "add", "model/net.py", "gone.py")
    (program / "gone.py").unlink()

    tree = tree_of(program / "model" / "net.py")

    assert tree.root == program
    assert tree.has_git
    assert "weights.pt" not in tree.files
    assert {"train.py", "model/net.py", ".gitignore"} <= set(tree.files)
    tree.copy(tmp_path / "copy")


def test_a_copy_holds_nothing_of_the_one_before_it(program: Path, tmp_path: Path) -> None:
    tree = tree_of(program / "train.py")
    copied = tree.copy(tmp_path / "copy")
    (copied / "checkpoint.pt").write_bytes(b"w")
    (copied / "train.py").write_text("changed\n")

    tree.copy(copied)

    assert sorted(state_of(copied)) == ["model/net.py", "train.py"]
    assert (copied / "train.py").read_text() == "step = print\n"


def test_a_copy_is_no_link_to_the_owners_file(program: Path, tmp_path: Path) -> None:
    (program / "data.bin").symlink_to(program / "train.py")

    copied = tree_of(program / "train.py").copy(tmp_path / "copy")
    (copied / "data.bin").write_text("lost\n")

    assert (program / "train.py").read_text() == "step = print\n"


@pytest.mark.parametrize("limit", ["MOST_BYTES", "MOST_FILES"])
def test_too_much_is_refused(program: Path, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(trees, limit, 1)

    with pytest.raises(UsageError, match=r"copi|copy"):
        tree_of(program / "train.py")


def test_what_a_start_wrote_made_and_removed_is_named(program: Path) -> None:
    before = state_of(program)
    (program / "train.py").write_text("another text\n")
    (program / "log.csv").write_text("1\n")
    (program / "model" / "net.py").unlink()
    (program / "__pycache__" / "more.pyc").write_bytes(b"1")

    said = [effect.said for effect in changes_between(before, state_of(program))]

    assert said == ["makes log.csv", "removes model/net.py", "writes train.py"]


def test_without_git_the_folder_that_holds_the_package_is_copied(program: Path) -> None:
    (program / "model" / "__init__.py").write_text("")

    assert tree_of(program / "model" / "net.py").root == program


def test_what_git_knows_and_no_copy_holds_is_named(program: Path) -> None:
    git(program, "init", "-q")
    (program / "data").symlink_to(program / "model")
    git(program, "add", ".")

    tree = tree_of(program / "train.py")

    assert tree.left_out == ("data",)


def test_what_lies_below_another_folder_is_not_looked_at(program: Path) -> None:
    assert list(state_of(program, program / "model")) == ["train.py"]
