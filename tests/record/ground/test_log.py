"""The log keeps its beginning and its end, in whatever pieces it arrives, and says what it cut."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgprof.record.ground.log import BoundedLog, Quiet


def kept(path: Path, pieces: list[bytes], *, head: int = 1000, tail: int = 1000) -> bytes:
    log = BoundedLog(path, head_bytes=head, tail_bytes=tail)
    for piece in pieces:
        log.feed(piece)
    log.close()
    return path.read_bytes()


def test_a_short_log_is_kept_as_it_is(tmp_path: Path) -> None:
    assert (
        kept(tmp_path / "log", [b"one\ntw", b"o\n", b"no newline at the end"])
        == b"one\ntwo\nno newline at the end"
    )


def test_of_a_long_log_the_middle_is_left_out_and_counted(tmp_path: Path) -> None:
    lines = [b"line %03d\n" % number for number in range(100)]

    text = kept(tmp_path / "log", lines, head=30, tail=20)

    assert text == (
        b"line 000\nline 001\nline 002\n\n[kgprof: 855 bytes of the log left out here]\nline "
        b"098\nline 099\n"
    )


def test_one_endless_line_is_bounded_too(tmp_path: Path) -> None:
    text = kept(tmp_path / "log", [b"x" * 400] * 10, head=100, tail=50)

    assert text == b"\n[kgprof: 3950 bytes of the log left out here]\n" + b"x" * 50


def test_the_head_is_on_disk_before_the_end(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path / "log")

    log.feed(b"said before the process was killed\n")

    assert (tmp_path / "log").read_bytes() == b"said before the process was killed\n"
    log.close()


def test_kinetos_probe_lines_are_dropped_and_their_likes_are_not() -> None:
    """On a line of a progress bar too, and where their end comes in a write of its own."""
    noise = b"USDT:2026-11-21 01:58:50 8938:8938 SyncActivityProfilerHandler.cpp:52] profiler_start"
    quiet = Quiet()

    pieces = [
        noise + b"\n",
        b"USDT: mine\n",
        b"\r 10 %",
        noise,
        b"\n",
        b"\r 20 %",
        b"\n",
        noise,
        b"\nlast",
    ]

    assert b"".join(map(quiet, pieces)) == b"USDT: mine\n\r 10 %\r 20 %\nlast"


@given(data=st.binary(max_size=300), cuts=st.lists(st.integers(0, 300), max_size=8))
def test_the_pieces_it_arrives_in_make_no_difference(
    data: bytes, cuts: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("log")
    ends = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces = [data[start:end] for start, end in itertools.pairwise(ends)]

    assert kept(folder / "pieces", pieces) == kept(folder / "whole", [data]) == data


def test_a_write_that_fails_is_raised_at_the_end_and_not_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = BoundedLog(Path("/dev/full"))

    log.feed(b"the child must not block\n")
    log.feed(b"on a full disk\n")

    with pytest.raises(OSError, match="No space left on device"):
        log.close()


def test_what_comes_after_the_end_is_dropped(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path / "log")
    log.close()

    log.feed(b"from a process that outlived its group\n")

    assert (tmp_path / "log").read_bytes() == b""
