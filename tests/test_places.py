"""A file as people name it, and as two machines do."""

from __future__ import annotations

import pytest

from kgprof.wording import relative, shared


@pytest.mark.parametrize(
    ("file", "named"),
    [
        ("/work/repo/src/model.py", "src/model.py"),
        ("/work/repository/model.py", "/work/repository/model.py"),
        ("src/model.py", "src/model.py"),
        ("C:\\repo\\model.py", "C:/repo/model.py"),
    ],
)
def test_a_file_of_the_repository_is_named_from_its_top(file: str, named: str) -> None:
    assert (relative(file, "/work/repo"), shared(file, "/work/repo")) == (named, named)


@pytest.mark.parametrize(
    "file",
    [
        "/work/repo/.venv/lib/python3.12/site-packages/shop/model.py",
        "/opt/conda/envs/b/lib/python3.11/site-packages/shop/model.py",
        "/usr/lib/python3/dist-packages/shop/model.py",
        "<site-packages>/shop/model.py",
        "site-packages/shop/model.py",
    ],
)
def test_an_installed_file_is_named_alike_in_every_environment(file: str) -> None:
    assert shared(file, "/work/repo") == "site-packages/shop/model.py"
