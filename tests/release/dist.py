"""The files of a release: built twice, in two folders, and kept only if both wheels have the same
bytes.

    python -m tests.release.dist OUT
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.release import lock

FILE_MODE = 0o644  # a wheel stores it, and a checkout has it from the umask


def committed(target: Path) -> Path:
    """What the last commit has, and nothing else of the checkout."""
    archive = subprocess.run(
        ["git", "archive", "HEAD"], cwd=lock.ROOT, check=True, capture_output=True
    )
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(target, filter="data")
    for path in target.rglob("*"):
        if path.is_file():
            path.chmod(FILE_MODE)
    return target


def of_the_commit() -> int:
    """Seconds since 1970, for everything in the archives."""
    asked = ["git", "log", "-1", "--format=%ct"]
    done = subprocess.run(asked, cwd=lock.ROOT, check=True, capture_output=True, text=True)
    return int(done.stdout)


def built(source: Path, out: Path, what: Sequence[str] = ()) -> Path:
    """Build what is asked for, by default an sdist and from it a wheel, and return the wheel."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(of_the_commit())}
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", *what, "--outdir", out, source],
        check=True,
        capture_output=True,
        env=environment,
        umask=0o022,
    )
    (wheel,) = out.glob("*.whl")
    return wheel


def main(out: Path) -> None:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        wheels = [
            built(committed(Path(folder) / "kgprof"), Path(folder) / "dist")
            for folder in (one, other)
        ]
        first, second = (wheel.read_bytes() for wheel in wheels)
        if first != second:
            raise SystemExit("two builds of the same commit gave two different wheels")
        out.mkdir(parents=True, exist_ok=True)
        for path in wheels[0].parent.iterdir():
            shutil.copy(path, out)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
