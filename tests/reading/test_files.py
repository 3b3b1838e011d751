"""Files of others: their lines, and what is opened where the system has no O_NOFOLLOW."""

from __future__ import annotations

import gzip
import itertools
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgprof.reading import files

# As on Windows: none of these, and nothing is opened below a descriptor.
ELSEWHERE = """
import os, sys
for name in ("O_NONBLOCK", "O_NOFOLLOW", "O_CLOEXEC", "O_PATH", "O_DIRECTORY"):
    delattr(os, name)
os.supports_dir_fd.clear()
from pathlib import Path
from kgprof.reading import files, kineto, recordings, timeline
folder = Path(sys.argv[1])
for name in sorted(path.name for path in folder.iterdir()):
    try:
        with files.opened(folder / name, folder) as file:
            print(name, file.read())
    except OSError as error:
        print(name, error.strerror)
"""


@given(
    text=st.lists(st.sampled_from([b"\n", b"\n\n\n", b"a", b"\t", b"bcd", b"\r"])).map(b"".join),
    block=st.integers(1, 9),
    packed=st.booleans(),
)
def test_lines_are_the_files_but_for_blank_ones_in_a_row(
    text: bytes, block: int, packed: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        path = Path(folder, "file")
        path.write_bytes(gzip.compress(text) if packed else text)
        patched.setattr(files, "_BLOCK", block)
        read = list(files.lines(path, None, longest=2**20, most_bytes=2**20))

    plain = text.removesuffix(b"\n").split(b"\n") if text else []
    assert [key for key, _ in itertools.groupby(read) if key] == [
        key for key, _ in itertools.groupby(plain) if key
    ]
    # Where the file has a blank line there is one, and no other.
    blanks = [
        [bool(key) for key, _ in itertools.groupby(found, key=bool)] for found in (read, plain)
    ]
    assert blanks[0] == blanks[1]
    assert len(read) <= len(plain)


@pytest.mark.parametrize("block", [1, 3, 2**20])
def test_lines_up_to_a_limit_are_read(
    tmp_path: Path, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_BLOCK", block)
    (tmp_path / "file").write_bytes(b"one\ntwo\nthe third\nfour\n")
    got: list[bytes] = []

    with pytest.raises(OSError, match="a line is longer than 8 bytes"):
        got.extend(files.lines(tmp_path / "file", None, longest=8, most_bytes=100))
    with pytest.raises(OSError, match="more lines or bytes"):
        list(files.lines(tmp_path / "file", None, longest=100, most_bytes=10))
    with pytest.raises(OSError, match="more lines or bytes"):
        list(files.lines(tmp_path / "file", None, longest=100, most_bytes=100, most=3))

    assert got == [b"one", b"two"]
    assert len(list(files.lines(tmp_path / "file", None, longest=9, most_bytes=100, most=4))) == 4


def test_a_system_without_nofollow_opens_the_same_files(tmp_path: Path) -> None:
    folder = tmp_path / "of others"
    folder.mkdir()
    (tmp_path / "secret").write_text("secret")
    (folder / "a file").write_bytes(b"its bytes\r\n\x1a")
    (folder / "a folder").mkdir()
    (folder / "inside").symlink_to("a file")
    (folder / "out").symlink_to(tmp_path / "secret")
    (folder / "device").symlink_to("/dev/zero")
    os.mkfifo(folder / "pipe")

    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, str(folder)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    no_file = "not a regular file (a folder, pipe or device); give a file"
    outside = f"it is outside {folder}; put the file itself there"
    assert done.stdout.splitlines() == [
        r"a file b'its bytes\r\n\x1a'",
        f"a folder {no_file}",
        f"device {outside}",
        r"inside b'its bytes\r\n\x1a'",
        f"out {outside}",
        f"pipe {no_file}",
    ], done.stderr
