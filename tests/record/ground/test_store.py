"""A Recording survives the way to disk and back; what is missing, broken or too new is said by
name."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kgprof.errors import InputError, UsageError
from kgprof.model import Exit, PassName, RunKey, Skipped, TimingPass
from kgprof.reading import layout, recordings
from kgprof.record.ground import store
from tests.record import handmade


def test_what_is_written_is_read_back_in_the_plans_order(tmp_path: Path) -> None:
    recording = handmade.write(tmp_path / "recording")

    assert [run.key for run in recording.runs] == [handmade.BATCHED, handmade.FUSED, handmade.LOST]
    assert recording.header == handmade._header()
    assert recording.agreement == handmade._agreement()
    fused = recording.runs[1]
    assert fused.compile == handmade._compile_pass(500.0)
    assert fused.host == handmade._host_pass(500.0)
    assert fused.evaluation == handmade._evaluation()
    assert fused.probe_exit == Exit(outcome="ok", exit_code=0, elapsed_s=9.0)
    assert fused.log == "a line that <torch> wrote & one more\n"
    assert layout.trace_path(recording, handmade.FUSED, PassName.KERNELS).is_file()


def test_a_pass_that_left_no_file_says_how_its_child_ended(tmp_path: Path) -> None:
    lost = handmade.write(tmp_path).runs[2]

    assert lost.compile == handmade._compile_pass(700.0)
    assert lost.timing == Skipped(reason="the run was killed during TIMING: SIGKILL")
    assert lost.kernels == lost.timing
    assert lost.evaluation == lost.timing


def test_a_run_that_never_started_says_so(tmp_path: Path) -> None:
    store.create(tmp_path, handmade._header())

    recording = recordings.load(tmp_path)

    assert recording.runs[0].exit == Exit(
        outcome="interrupted", message="never started: kgprof ended before it"
    )
    assert recording.agreement == Skipped(reason="kgprof ended before the results were compared")


@pytest.mark.parametrize(
    "name",
    [
        "",
        "recording",
        "recording/recording.json",
        "report.html",
        "report.json",
        "recording/../report.html",
    ],
)
def test_a_recording_is_found_from_anything_that_stands_around_it(
    tmp_path: Path, name: str
) -> None:
    handmade.write(tmp_path / "recording")
    (tmp_path / "report.html").write_text("<p>", encoding="utf-8")
    (tmp_path / "report.json").write_text("{}", encoding="utf-8")

    assert layout.resolve(tmp_path / name).resolve() == (tmp_path / "recording").resolve()


def test_a_missing_path_and_a_folder_without_a_recording_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="file or folder not found"):
        recordings.load(tmp_path / "absent")
    with pytest.raises(InputError, match="no Recording found"):
        recordings.load(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "was not written by kgprof"),
        ("{}", "schema_version is missing"),
        ('{"schema_version": 99}', "newer than this kgprof reads"),
        ('{"schema_version": 1}', "missing required field"),
    ],
)
def test_a_broken_header_names_its_file(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "recording.json").write_text(text, encoding="utf-8")

    with pytest.raises(InputError, match=message) as caught:
        recordings.load(tmp_path)

    assert str(tmp_path / "recording.json") in str(caught.value)


def test_a_broken_pass_names_its_file(tmp_path: Path) -> None:
    handmade.write(tmp_path)
    broken = layout.run_folder(tmp_path, handmade.FUSED) / "timing.json"
    broken.write_text(json.dumps({"kind": "timing"}), encoding="utf-8")

    with pytest.raises(InputError, match=r"fused\.default/timing\.json: was not written by kgprof"):
        recordings.load(tmp_path)


def write_half_and_fail(target: Path) -> None:
    with store.replacing(target) as partial:
        partial.write_text("new", encoding="utf-8")
        raise ZeroDivisionError


def test_an_interrupted_write_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    target = tmp_path / "timing.json"
    target.write_text("old", encoding="utf-8")

    with pytest.raises(ZeroDivisionError):
        write_half_and_fail(target)

    assert [path.name for path in tmp_path.iterdir()] == ["timing.json"]
    assert target.read_text(encoding="utf-8") == "old"


def test_what_is_no_file_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        store.write_export(pipe, b"a document")

        assert os.read(reader, 100) == b"a document"
    finally:
        os.close(reader)
    assert [path.name for path in tmp_path.iterdir() if path.is_fifo()] == ["pipe"]


@pytest.mark.parametrize("strategy", ["../../escape", "a/b", "..", "näme", "x" * 300, "a b", ""])
def test_any_strategy_name_is_one_folder_below_runs(tmp_path: Path, strategy: str) -> None:
    key = RunKey(strategy=strategy, mode="eager")

    store.write_pass(
        tmp_path,
        key,
        PassName.TIMING,
        TimingPass(clock="perf_counter", step_us=((1.0,),), evaluation_s=()),
    )

    (folder,) = (tmp_path / "runs").iterdir()
    assert folder == layout.run_folder(tmp_path, key)
    assert (folder / "timing.json").is_file()


def test_two_long_names_do_not_share_a_folder(tmp_path: Path) -> None:
    first, second = (RunKey(strategy="x" * 300 + end, mode="eager") for end in "ab")

    assert layout.run_folder(tmp_path, first) != layout.run_folder(tmp_path, second)


def test_a_folder_that_holds_a_recording_is_not_written_over(tmp_path: Path) -> None:
    handmade.write(tmp_path)

    with pytest.raises(UsageError, match="already holds a Recording"):
        store.create(tmp_path, handmade._header())


def test_an_unwritable_place_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")

    with pytest.raises(
        UsageError, match=r"cannot write .*file/recording/recording\.json: Not a directory"
    ):
        store.create(tmp_path / "file" / "recording", handmade._header())
