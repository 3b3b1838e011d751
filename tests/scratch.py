"""One folder for what tests make besides pytest's own: gone when the session is over, or the
interpreter ends."""

from __future__ import annotations

import tempfile
from pathlib import Path

FOLDER = tempfile.TemporaryDirectory(prefix="kgprof-tests-", ignore_cleanup_errors=True)


def new_folder() -> Path:
    return Path(tempfile.mkdtemp(dir=FOLDER.name))
