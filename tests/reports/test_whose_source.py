"""``kgprof profile`` never takes an installed library's source for the owner's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kgprof.cli import reading
from tests.reports.truth import programs

ROOT = Path(__file__).resolve().parents[2]
WITH_LIBRARIES = ("decoder_with_growing_cache", "molecules_from_a_loader", "root_hook_normalises")


@pytest.mark.long
@pytest.mark.parametrize("name", WITH_LIBRARIES)
def test_each_finding_lies_in_the_program_and_the_library_stands_beside_it(
    name: str, tmp_path: Path
) -> None:
    (program,) = (each for each in programs() if each.name == name)
    workload = program.workload(program.starts[-1])
    options = ("--passes", "compile,memory", "--include-source", "all", "-o", tmp_path)

    done = subprocess.run(
        [sys.executable, "-m", "kgprof", "profile", workload, *options],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    profile = reading.read(tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    places = [
        place
        for finding in profile.findings
        for place in (finding.location, *finding.related)
        if place is not None
    ]
    assert {Path(place.file).name for place in places} <= {program.path.name}
    assert all(finding.location is not None for finding in profile.findings if finding.library)
