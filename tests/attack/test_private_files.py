"""What kgprof writes for its user alone, or reads from a place that others can write to."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from kgprof import cli
from kgprof.cli import entry, reading
from kgprof.record.ground import environment, store
from tests.record import handmade

TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A command that fails with a bug of kgprof's in this folder."""
    handmade.write(tmp_path / "recording")

    def fails(*_: object) -> None:
        raise ZeroDivisionError(f"token={TOKEN} in {Path.home()}/secret")

    monkeypatch.setattr(reading, "analyse", fails)
    monkeypatch.setattr(entry.tempfile, "gettempdir", lambda: str(tmp_path))
    return tmp_path


def test_a_traceback_is_its_users_alone_and_redacted(
    broken: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = os.umask(0)
    try:
        assert cli.run(["report", str(broken)]) == 3
    finally:
        os.umask(before)

    (saved,) = broken.glob("kgprof-traceback-*.txt")
    assert mode(saved) == 0o600
    text = saved.read_text(encoding="utf-8")
    assert "ZeroDivisionError" in text
    assert TOKEN not in text
    assert str(Path.home()) + "/" not in text
    assert str(saved) in capsys.readouterr().err


def test_a_traceback_follows_no_link_that_somebody_has_put_there(
    broken: Path, tmp_path: Path
) -> None:
    # given: the name that an older kgprof would have taken, as a link
    victim = tmp_path / "victim"
    victim.write_text("precious", encoding="utf-8")
    planted = broken / f"kgprof-traceback-{os.getpid()}.txt"
    planted.symlink_to(victim)

    assert cli.run(["report", str(broken)]) == 3

    assert victim.read_text(encoding="utf-8") == "precious"
    written = [one for one in broken.glob("kgprof-traceback-*.txt") if not one.is_symlink()]
    assert len(written) == 1


def test_where_redaction_is_what_is_broken_no_traceback_is_written(
    broken: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("no pattern today")

    monkeypatch.setattr("kgprof.analysis.redaction.Redactor", fails)

    assert cli.run(["report", str(broken)]) == 3

    assert not list(broken.glob("kgprof-traceback-*"))
    assert "run again with -v for its traceback (no pattern today)" in capsys.readouterr().err


def test_a_recording_can_be_entered_by_its_user_alone(tmp_path: Path) -> None:
    recording = tmp_path / "new" / "recording"

    store.create(recording, handmade.write(tmp_path / "made").header)

    assert mode(recording) == 0o700


@pytest.mark.parametrize(
    ("parents_mode", "is_kept"),
    [(0o755, True), (0o700, True), (0o1777, True), (0o777, False), (0o775, False)],
)
def test_what_is_loaded_again_lies_where_nobody_else_can_put_something_in_its_place(
    parents_mode: int, is_kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given: pytest's own folders, which only their user can enter
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(parents_mode)
    monkeypatch.setattr(
        "torch._inductor.runtime.cache_dir_utils.default_cache_dir", lambda: str(shared / "cache")
    )

    assert (environment._kept() is not None) == is_kept


def test_what_is_loaded_again_is_not_looked_for_behind_a_link_of_somebody_elses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tmp_path / "anybodys"
    real.mkdir()
    real.chmod(0o777)
    (tmp_path / "cache").symlink_to(real)
    monkeypatch.setattr(
        "torch._inductor.runtime.cache_dir_utils.default_cache_dir", lambda: str(tmp_path / "cache")
    )

    assert environment._kept() is None
