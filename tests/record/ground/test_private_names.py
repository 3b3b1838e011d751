"""What this machine and its user are called, from whatever says it."""

from __future__ import annotations

import platform
import pwd
from pathlib import Path
from types import SimpleNamespace

import pytest

from kgprof.model import PrivateNames
from kgprof.record.ground.private_names import private_names


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "node", lambda: "gpu-node17")
    monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_name="analima"))
    monkeypatch.setattr(Path, "home", lambda: Path("/srv/people/analima"))


def test_names_come_from_variables_and_the_account_each_once(here: None) -> None:
    variables = {
        "USER": "analima",
        "SUDO_USER": "boss",
        "USERNAME": "",
        "HOSTNAME": "gpu-node17.corp.example",
        "HOME": "/scratch",
    }

    assert private_names(variables) == PrivateNames(
        users=("analima", "boss"),
        hosts=("gpu-node17", "gpu-node17.corp.example"),
        homes=("/scratch", "/srv/people/analima"),
    )


def test_the_folders_of_pythonpath_are_known_absolute_each_once(here: None) -> None:
    found = private_names({"PYTHONPATH": "/data/siblings:/:lib::/data/siblings/"})

    assert found.import_folders == ("/data/siblings", str(Path.cwd() / "lib"))


def test_a_folder_of_pythonpath_above_homes_is_none_that_names_begin_at(here: None) -> None:
    found = private_names(
        {"PYTHONPATH": "//:/home/:/Users:/srv/people:/srv/people/analima/lib", "HOME": "/scratch"}
    )

    assert found.import_folders == ("/srv/people/analima/lib",)


def test_without_variables_the_account_still_has_a_name(here: None) -> None:
    assert private_names({}) == PrivateNames(
        users=("analima",), hosts=("gpu-node17",), homes=("/srv/people/analima",)
    )


def test_an_account_without_a_name_or_a_home_is_no_error(
    here: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: object) -> None:
        raise KeyError("getpwuid(): uid not found: 1234")

    def homeless() -> None:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.setattr(Path, "home", homeless)

    assert private_names({}) == PrivateNames(users=(), hosts=("gpu-node17",), homes=())
