"""`kgprof compare --history FOLDER`: what it adds to the folder, in which order it shows what is
there, and what it says of files that are no part of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from kgprof import cli
from kgprof import model as m
from kgprof.render import by_name
from tests.analysis.compared import STEP_US, profile, slower

IDENTITY = ("-c", "user.name=t", "-c", "user.email=t@example.org")


def here(capsys: pytest.CaptureFixture[str], *args: str | Path) -> tuple[int, str, str]:
    code = cli.run([str(arg) for arg in args])
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.fixture(autouse=True)
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Of three commits, whose dates are the wrong way round; the oldest first."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    subprocess.run(["git", "init", "-q", "-b", "main"], check=True)
    for day in (3, 2, 1):
        monkeypatch.setenv("GIT_COMMITTER_DATE", f"2026-01-0{day}T12:00:00Z")
        commit = ["git", *IDENTITY, "commit", "-q", "--allow-empty", "-m", f"day {day}"]
        subprocess.run(commit, check=True)
    listed = ["git", "rev-list", "--reverse", "HEAD"]
    return subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split()


def recorded(folder: Path, commit: str, factor: float = 1.0) -> Path:
    """A report as `kgprof profile` leaves it."""
    made = slower(profile(), factor * STEP_US)
    environment = msgspec.structs.replace(made.environment, git_commit=commit, git_dirty=False)
    made = msgspec.structs.replace(made, environment=environment)
    folder.mkdir()
    (folder / "report.json").write_text(by_name("json").render(made), encoding="utf-8")
    return folder


def document(text: str) -> m.Trend:
    return m.decode_json(text, m.Trend)


def test_a_recording_becomes_one_file_and_is_there_once(
    tmp_path: Path, repository: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    run = recorded(tmp_path / "run", repository[0])

    code, out, err = here(capsys, "compare", "--history", "kept", run)
    (file,) = (tmp_path / "kept").iterdir()
    written = file.read_bytes()
    again = here(capsys, "compare", "--history", "kept", run)

    assert (code, again[0]) == (0, 0)
    assert err.endswith(f"/run is in the history: kept/{file.name}\n")
    assert file.name.startswith(f"{repository[0][:12]}-")
    assert [*(tmp_path / "kept").iterdir()] == [file]
    assert file.read_bytes() == written
    assert m.decode_json(written, m.TrendPoint).committed_utc == "2026-01-03T12:00:00Z"
    assert "INCONCLUSIVE: No count changed; step has 1 of the 10 recordings" in " ".join(
        out.split()
    )


def test_the_order_is_gits_and_of_what_git_does_not_know_the_dates(
    tmp_path: Path, repository: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = "e" * 40
    for number, commit in enumerate((repository[2], elsewhere, repository[0], repository[1])):
        here(capsys, "compare", "--history", "kept", recorded(tmp_path / str(number), commit))

    code, out, _ = here(capsys, "compare", "--history", "kept", "--format", "json")

    shown = [each.commit for each in document(out).points]
    assert code == 0
    assert [each for each in shown if each != elsewhere] == repository
    assert len(shown) == 4


def test_without_git_it_is_by_date(
    tmp_path: Path,
    repository: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for number, commit in enumerate(repository):
        here(capsys, "compare", "--history", "kept", recorded(tmp_path / str(number), commit))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))

    _, out, _ = here(capsys, "compare", "--history", "kept", "--format", "json")

    assert [each.commit for each in document(out).points] == repository[::-1]


def test_files_of_others_are_named_and_the_rest_is_shown(
    tmp_path: Path, repository: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    here(capsys, "compare", "--history", "kept", recorded(tmp_path / "run", repository[0]))
    kept = tmp_path / "kept"
    (good,) = kept.iterdir()
    later = json.loads(good.read_text("utf-8")) | {"trend_version": 99}
    (kept / "later.json").write_text(json.dumps(later))
    (kept / "cut.json").write_bytes(good.read_bytes()[:300])
    (kept / "notes.md").write_text("mine")
    (kept / "nested.json").write_text("[" * 100_000)
    (kept / "large.json").write_text(" " * 2_000_000)
    (kept / "out.json").symlink_to(tmp_path / "run" / "report.json")
    (kept / "folder").mkdir()
    os.mkfifo(kept / "fifo")
    (kept / f".partial-7-{good.name}").write_text("a second job's")

    code, out, err = here(capsys, "compare", "--history", kept)

    assert (code, err) == (0, "")
    assert "8 files could not be read" in out
    for name in ("later", "cut", "nested", "large", "out"):
        assert f"{name}.json: " in out
    assert "another kgprof wrote it (version 99)" in out


def test_two_jobs_at_once_lose_nothing(
    tmp_path: Path, repository: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [recorded(tmp_path / f"run{number}", repository[number]) for number in range(3)]
    jobs = [
        subprocess.Popen(
            [sys.executable, "-m", "kgprof", "compare", "--history", "kept", run],
            stdout=subprocess.DEVNULL,
        )
        for run in runs
    ]

    assert [job.wait() for job in jobs] == [0, 0, 0]
    _, out, _ = here(capsys, "compare", "--history", "kept", "--format", "json")
    assert {each.commit for each in document(out).points} == {*repository}


def test_page_and_document_stand_in_the_folder_that_is_named(
    tmp_path: Path, repository: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    run = recorded(tmp_path / "run", repository[0])

    for _ in range(2):  # the second time in place of the first, in the history's own folder
        code, _, err = here(capsys, "compare", "--history", "kept", run, "-o", "kept")
        assert (code, "kgprof: the report is kept/trend.html" in err) == (0, True)

    found = document((tmp_path / "kept" / "trend.json").read_text("utf-8"))
    assert found.unread == ()
    assert len(found.points) == 1
    assert "<script" not in (tmp_path / "kept" / "trend.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--history", "none"), "none: cannot be read: No such file or directory"),
        (("--history", "empty"), "empty: no recording is in this history"),
        (("--history", "empty", "run", "--format", "sarif"), "has no format sarif"),
        (("--history", "empty", "nothing"), "nothing: file or folder not found"),
        (("--history", "empty", "--record", "HEAD^", "."), "takes recordings that exist"),
        (("--history", "empty", "run", "--rounds", "5"), "compare runs nothing"),
        (("run",), "compare needs BASE and HEAD"),
        ((), "compare needs BASE and HEAD"),
    ],
)
def test_a_mistake_is_told_and_nothing_is_added(
    args: tuple[str, ...],
    said: str,
    tmp_path: Path,
    repository: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "empty").mkdir()
    recorded(tmp_path / "run", repository[0])

    code, _, err = here(capsys, "compare", *args)

    assert code == 2
    assert said in err
    assert [*(tmp_path / "empty").iterdir()] == []
