"""What a Recording takes along: source text, registry entries, and which folders were libraries."""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path

import pytest
import torch

import kgprof
from kgprof.model.compile_records import SourceFile
from kgprof.reading.project import ProjectFiles
from kgprof.record.ground import project_sources
from kgprof.record.ground.project_sources import gather, project_files
from tests.record import sessions

EVERYTHING = ProjectFiles(libraries=())


def written(folder: Path, text: str = "x = 1\n") -> Path:
    path = folder / "program.py"
    path.write_text(text, encoding="utf-8")
    return path


def test_libraries_are_told_from_the_project() -> None:
    project = project_files("linkpred")

    assert project.holds(__file__)
    assert project.holds(str(Path(kgprof.__file__).parent / "workloads" / "linkpred" / "policy.py"))
    assert not project.holds(torch.__file__)
    assert not project.holds(hashlib.__file__)
    assert not project.holds(project_sources.__file__)


def test_the_workloads_folder_is_the_projects_wherever_it_lies(tmp_path: Path) -> None:
    installed = tmp_path / "site-packages" / "shop"
    installed.mkdir(parents=True)
    program = written(installed)

    assert not project_files("linkpred").holds(str(program))
    assert project_files(f"{program}:step").holds(str(program))
    assert project_files("tests.record.sessions:Stepping").holds(sessions.__file__)


def test_what_the_program_imported_comes_along_though_no_record_names_it() -> None:
    project = project_files("tests.record.sessions:Stepping")

    assert gather([], project).files == {}
    assert sessions.__file__ in gather([], project, imported=True).files
    assert torch.__file__ not in gather([], project, imported=True).files


def test_every_named_project_file_comes_along_with_its_hash(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    program = written(tmp_path)
    lines = [
        {"frame": {"file": str(program), "text": ""}},
        {"metadata": {"str": [str(program), 3]}, "payload": None},
        {
            "metadata": {},
            "payload": f'  File "{tmp_path}/gone.py", line 3, in f\n  File "<string>", line 1',
        },
    ]

    found = gather(lines, EVERYTHING)

    expected = SourceFile(
        sha256=hashlib.sha256(b"x = 1\n").hexdigest(),
        text="x = 1\n",
        left_out="",
        repository=str(tmp_path),
    )
    assert found.files == {str(program): expected}


def test_without_git_the_working_directory_stands_for_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, outside = written(tmp_path), written(tmp_path.parent)
    monkeypatch.chdir(tmp_path)
    project_sources.started_in.cache_clear()  # as in a process that begins here

    found = gather(
        [{"frame": {"file": str(file), "text": ""}} for file in (inside, outside)], EVERYTHING
    )

    project_sources.started_in.cache_clear()
    assert [file.repository for file in found.files.values()] == [str(tmp_path), ""]


def test_a_file_of_a_library_stays_out(tmp_path: Path) -> None:
    program = written(tmp_path)

    found = gather(
        [{"frame": {"file": str(program), "text": ""}}], ProjectFiles(libraries=(str(tmp_path),))
    )

    assert found.files == {}
    assert found.libraries == (str(tmp_path),)


def test_records_of_others_make_kgprof_read_no_more_than_the_python_below_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given: records that name a program, keys beside it, and what lies above or outside, with and
    # without a link
    (tmp_path / "here").mkdir()
    outside = written(tmp_path)
    inside, keys, link = (
        written(tmp_path / "here"),
        tmp_path / "here" / ".netrc",
        tmp_path / "here" / "link.py",
    )
    keys.write_text("password")
    link.symlink_to("/etc/passwd")
    named = (
        inside,
        keys,
        link,
        outside,
        tmp_path / "here" / ".." / "program.py",
        "/etc/passwd",
        "/dev/zero",
    )
    monkeypatch.setattr(project_sources, "started_in", lambda: tmp_path / "here")
    # when
    lines = [{"metadata": {"str": [str(path), number]}} for number, path in enumerate(named)]
    theirs, ours = (gather(lines[:-1], EVERYTHING, recorded_here=here) for here in (False, True))
    # then
    assert set(theirs.files) == {str(inside)}
    assert {str(inside), str(keys), str(outside), "/etc/passwd"} <= set(ours.files)
    assert not gather(lines[-1:], EVERYTHING).files


def test_a_long_file_is_hashed_and_its_text_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(project_sources, "FILE_BYTES", 10)
    program = written(tmp_path, "x = 1  # and more\n")

    source = gather([{"frame": {"file": str(program), "text": ""}}], EVERYTHING).files[str(program)]

    assert (source.text, source.left_out) == (None, "18 bytes, more than the 10 still allowed")


def test_the_texts_together_have_a_limit_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(project_sources, "TEXT_BYTES", 10)
    first, second = written(tmp_path), tmp_path / "second.py"
    second.write_text("y = 2\n", encoding="utf-8")
    lines = [{"frame": {"file": str(file), "text": ""}} for file in (first, second)]

    texts = [source.text for source in gather(lines, EVERYTHING).files.values()]

    assert texts == ["x = 1\n", None]


def test_registry_entries_of_the_ids_that_were_seen() -> None:
    lines = [
        {"metadata": {}, "payload": "see https://example.org/gb/gb0059.html and /gb/gb0059.html"},
        {
            "metadata": {"compilation_metrics": {"fail_reason": "visit x/gb/gb7000.html"}},
            "payload": None,
        },
        {"frame": {"file": "<string>", "text": "x/gb/gb999999.html"}},
    ]

    registry = gather(lines, EVERYTHING).registry

    assert list(registry) == ["GB0059", "GB7000"]  # the third id is in no torch
    assert registry["GB0059"].type == "Failed to trace builtin operator"
    assert all(entry.explanation and entry.hints for entry in registry.values())


def test_a_torch_without_a_registry_is_no_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(project_sources, "REGISTRY", tmp_path / "none.json")

    assert gather([{"metadata": {}, "payload": "/gb/gb0059.html"}], EVERYTHING).registry == {}


def test_the_packages_whose_lines_are_named_come_along_with_their_versions() -> None:
    import yaml

    lines = [
        {"metadata": {"str": [file, number]}}
        for number, file in enumerate((torch.__file__, yaml.__file__))
    ]
    lines += [
        {"frame": {"file": __file__, "text": "", "stack": [{"file": hashlib.__file__, "line": 3}]}}
    ]

    packages = gather(lines, project_files("linkpred")).packages

    assert packages == {
        "Python": f"Python {platform.python_version()}",
        "torch": f"torch {torch.__version__}",
        "yaml": f"PyYAML {yaml.__version__}",
    }
    assert gather(lines, project_files("linkpred"), recorded_here=False).packages == {}


def test_a_distribution_of_the_name_that_is_imported_is_found_without_looking_through_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[str] = []
    monkeypatch.setattr(
        project_sources, "distributions", lambda: looked.append("all") or {"yaml_": ["PyYAML_"]}
    )
    project_sources._package_and_version.cache_clear()

    found = [project_sources._package_and_version(name) for name in ("torch", "", "yaml_")]

    assert found == [f"torch {torch.__version__}", "", ""]
    assert looked == ["all"]
