"""Whose files are whose where libraries lie in places that their owner chose."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kgprof.reading.project import ProjectFiles
from kgprof.record.ground.project_sources import project_files

STEP = "def step():\n    return 1\n"


def program(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(STEP)
    return f"{path}:step"


def installed(folder: Path) -> str:
    """A library as pip leaves it in ``folder``: its file."""
    (folder / "shelf").mkdir(parents=True)
    (folder / "shelf-1.4.2.dist-info").mkdir()
    (folder / "shelf" / "stack.py").write_text("")
    return str(folder / "shelf" / "stack.py")


@pytest.mark.parametrize(
    "below", ["venv/lib/python3.11/site-packages", "lib/python3.9/site-packages"]
)
def test_an_environment_below_the_programs_folder_holds_libraries(
    tmp_path: Path, below: str
) -> None:
    workload, library = program(tmp_path / "train.py"), installed(tmp_path / below)

    files = project_files(workload)

    assert (files.holds(str(tmp_path / "train.py")), files.holds(library)) == (True, False)


def test_what_pip_put_into_a_folder_of_any_name_is_a_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload, library = program(tmp_path / "train.py"), installed(tmp_path / "vendored")
    monkeypatch.syspath_prepend(str(tmp_path / "vendored"))

    files = project_files(workload)

    assert (files.holds(str(tmp_path / "train.py")), files.holds(library)) == (True, False)
    assert files.package(library)[0] in ("shelf", "vendored")


def test_a_program_among_installed_files_owns_itself_and_not_its_neighbours(tmp_path: Path) -> None:
    folder = tmp_path / "site-packages"
    workload, library = program(folder / "tool.py"), installed(folder)

    for files in (project_files(workload), project_files(workload.removesuffix(":step"))):
        assert (files.holds(str(folder / "tool.py")), files.holds(library)) == (True, False)


def test_a_programs_folder_stays_its_own_when_pip_installed_into_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = program(tmp_path / "src" / "train.py")
    installed(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    files = project_files(workload)

    assert (
        files.holds(str(tmp_path / "src" / "model.py")),
        files.holds(str(tmp_path / "data.py")),
    ) == (True, True)


def test_an_editable_package_is_its_owners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pip leaves only its metadata among the libraries, and a path to the sources."""
    workload, library = program(tmp_path / "train.py"), installed(tmp_path / "libraries")
    shutil.move(Path(library).parent, tmp_path / "checkout" / "shelf")
    monkeypatch.syspath_prepend(str(tmp_path / "checkout"))

    assert project_files(workload).holds(str(tmp_path / "checkout" / "shelf" / "stack.py"))


def test_the_same_folder_as_both_is_the_programs() -> None:
    files = ProjectFiles(libraries=("/srv/app",), own=("/srv/app/tool.py",))

    assert (files.holds("/srv/app/tool.py"), files.holds("/srv/app/shelf/stack.py")) == (
        True,
        False,
    )
