"""What an older kgprof put into sentences becomes fields when its Recordings are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kgprof.model import CompilePass, TimingPass, Unavailable
from kgprof.reading import layout, recordings
from tests.record import handmade

NO_LOGS = "capture torch logs unavailable: TypeError: 'NoneType': no such name"
CUT_OFF = "capture structured trace incomplete: the file breaks off"
FIELDS = (
    Unavailable(capture="torch logs", why="TypeError: 'NoneType': no such name"),
    Unavailable(capture="structured trace", why="the file breaks off", incomplete=True),
)


def rewritten(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}, indent=2))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of one run of a Recording."""
    recording = handmade.write(tmp_path)
    return layout.run_folder(Path(recording.folder), recording.runs[0].key)


def test_captures_that_were_unavailable(folder: Path) -> None:
    rewritten(folder / "compile.json", capture_unavailable=[NO_LOGS, CUT_OFF])

    compiled = recordings.load(folder.parent.parent).runs[0].compile

    assert isinstance(compiled, CompilePass)
    assert compiled.capture_unavailable == FIELDS
    assert [lost.words for lost in FIELDS] == [NO_LOGS, CUT_OFF]


def test_a_slow_first_evaluation(folder: Path) -> None:
    note = "the first evaluation took 1.35 times the median of the others"
    rewritten(folder / "timing.json", notes=["another", note])

    timing = recordings.load(folder.parent.parent).runs[0].timing

    assert isinstance(timing, TimingPass)
    assert (timing.slow_first, timing.notes) == (1.35, ("another",))


def test_a_capture_of_another_kind_is_left_to_the_decoder() -> None:
    data = b'{"a": {"capture_unavailable": 3}, "capture_unavailable": ["capture x incomplete: y"]}'

    found = json.loads(recordings.with_captures_as_fields(data))

    assert found["a"] == {"capture_unavailable": 3}
    assert found["capture_unavailable"] == [{"capture": "x", "why": "y", "incomplete": True}]
