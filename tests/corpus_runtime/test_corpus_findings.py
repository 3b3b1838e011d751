"""Every program of the corpus through kgprof's own passes and collectors: nothing missed, nothing
invented."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from kgprof import collectors
from kgprof.model import MemoryPass, Recording
from kgprof.model.memory_records import SyncRecords, TensorRecords
from kgprof.reading import recordings
from kgprof.reading.evidence import Evidence
from tests.corpus_runtime import found
from tests.corpus_runtime.record import key_of
from tests.corpus_runtime.truth import CORPUS, RULES, Program, programs
from tests.gathering import for_all

ROOT = CORPUS.parents[1]
DEVICE = "cpu"
PROGRAMS = tuple(program for program in programs() if program.runs_on(DEVICE))
RAISES = frozenset({"cond_returns_operand"})


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """All programs in one process of their own, so that nothing of pytest is on their stacks."""
    folder = tmp_path_factory.mktemp("corpus_runtime") / "recording"
    command = [sys.executable, "-m", "tests.corpus_runtime.record", str(folder), "--device", DEVICE]
    # its own caches: COMPILE adds up twice in each program what lies in them
    caches = {"TORCHINDUCTOR_CACHE_DIR": str(folder.with_name("caches"))}
    ended = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **caches},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    return recordings.load(folder)


@for_all(PROGRAMS, lambda program: program.name)
def test_a_programs_findings_are_its_marks(program: Program, recording: Recording) -> None:
    environment = recording.header.plan.environment
    marks = program.expected(torch=environment.torch, python=environment.python, device=DEVICE)
    found_here = found.of_run(recording, key_of(program))

    at = {one.place: one for one in found_here}
    assert Counter(found_here) == Counter(
        found.expected(mark, at.get(found.place_of(mark))) for mark in marks
    )


def test_every_source_was_there(recording: Recording) -> None:
    runs = {run.key: run for run in recording.runs}
    for program in PROGRAMS:
        run = runs[key_of(program)]
        if program.name in RAISES:
            assert run.exit.outcome == "raised", program.name
            continue

        assert isinstance(run.memory, MemoryPass), program.name
        assert run.memory.capture_unavailable == (), program.name
        assert len(run.memory.step_us) == program.calls, program.name
        assert isinstance(run.memory.syncs, SyncRecords), program.name
        assert isinstance(run.memory.tensors, TensorRecords), program.name


def test_a_finding_shows_its_line_and_function(recording: Recording) -> None:
    for finding in collectors.findings(Evidence(recording)):
        if finding.rule not in RULES:
            continue
        place = finding.location
        assert place is not None
        assert (
            place.text == Path(place.file).read_text(encoding="utf-8").splitlines()[place.line - 1]
        )
        assert place.function
        assert finding.message.isprintable()


def test_no_two_findings_are_the_same(recording: Recording) -> None:
    fingerprints = [finding.fingerprint for finding in collectors.findings(Evidence(recording))]

    assert len(set(fingerprints)) == len(fingerprints)
