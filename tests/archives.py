"""Unpacks the archives of fixtures/recordings, each once in a test process; nobody writes into
them."""

from __future__ import annotations

import functools
import tarfile
from pathlib import Path

from tests import scratch

RECORDINGS = Path(__file__).resolve().parents[1] / "fixtures" / "recordings"


@functools.cache
def unpacked(name: str) -> Path:
    """Returns the folder with what the archive of this file name holds."""
    folder = scratch.new_folder()
    with tarfile.open(RECORDINGS / name) as archive:
        archive.extractall(folder, filter="data")
    return folder
