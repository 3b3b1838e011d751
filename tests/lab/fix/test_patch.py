"""A patch is what git takes, and makes of the one text the other."""

import subprocess
from pathlib import Path

import pytest

from kgprof.lab.fix.patch import lines_changed, patch_of

TEXTS = [
    ("a = 1\nb = 2\n", "a = 1\nmodel.compile()\nb = 2\n"),
    ("a = 1\nb = 2", "a = 1\nb = 3"),
    ("a = 1\n\f\nb = '\u2028'\n", "a = 1\nx = 0\n\f\nb = '\u2028'\n"),
    ("a = 1", "a = 1\nb = 2\n"),
    ("a = 1\n" * 40, "a = 1\n" * 20 + "x\n" + "a = 1\n" * 20 + "y\n"),
    ("a = 'ä'\r\nb = 2\r\n", "a = 'ä'\r\nc = 3\r\nb = 2\r\n"),
]


@pytest.mark.parametrize(("before", "after"), TEXTS)
def test_git_applies_it(before: str, after: str, tmp_path: Path) -> None:
    file = tmp_path / "pkg" / "a.py"
    file.parent.mkdir()
    file.write_bytes(before.encode())
    patch = tmp_path / "fix.patch"
    patch.write_bytes(patch_of("pkg/a.py", before, after).encode())
    subprocess.run(["git", "-C", str(tmp_path), "init", "-q"], check=True)

    done = subprocess.run(
        ["git", "-C", str(tmp_path), "apply", "fix.patch"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert file.read_bytes() == after.encode()


def test_nothing_changed_is_no_patch() -> None:
    assert patch_of("a.py", "a\n", "a\n") == ""


def test_the_lines_of_a_lever_are_those_that_it_adds() -> None:
    before = "def f():\n    x = g()\n    return x\n"
    after = "def f():\n    x = g(fused=True)\n    return x\nf()\n"

    assert lines_changed(before, after) == "x = g(fused=True)\nf()"
