"""The corpus as an H200 saw it, recorded once: the marks hold there as well, also those that need a
GPU."""

from __future__ import annotations

from collections import Counter

import pytest

from kgprof import collectors
from kgprof.model import MemoryPass, Recording
from kgprof.reading import recordings
from kgprof.reading.evidence import Evidence
from tests.archives import unpacked
from tests.corpus_runtime import found
from tests.corpus_runtime.record import key_of
from tests.corpus_runtime.truth import programs

DEVICE = "cuda"
PROGRAMS = tuple(program for program in programs() if program.runs_on(DEVICE))


@pytest.fixture(scope="module")
def recording() -> Recording:
    return recordings.load(unpacked("corpus_runtime_h200.tgz"))


def test_it_was_made_where_it_says(recording: Recording) -> None:
    plan = recording.header.plan

    assert (plan.device, plan.environment.torch, plan.environment.python) == (
        DEVICE,
        "2.11.0+cu130",
        "3.12.3",
    )
    watched = [run.memory for run in recording.runs if isinstance(run.memory, MemoryPass)]
    assert {memory.capture_unavailable for memory in watched} == {()}


def test_every_programs_findings_are_its_marks(recording: Recording) -> None:
    recorded, environment = {run.key for run in recording.runs}, recording.header.plan.environment
    newer = [program.name for program in PROGRAMS if key_of(program) not in recorded]
    assert not newer, f"make the recording anew (fixtures/recordings/README.md): it lacks {newer}"
    other = {}
    for program in PROGRAMS:
        marks = program.expected(torch=environment.torch, python=environment.python, device=DEVICE)
        found_here = found.of_run(recording, key_of(program))
        at = {one.place: one for one in found_here}
        wanted = Counter(found.expected(mark, at.get(found.place_of(mark))) for mark in marks)
        if Counter(found_here) != wanted:
            other[program.name] = (found_here, wanted)

    assert other == {}


def test_the_two_sources_never_disagreed(recording: Recording) -> None:
    assert [
        finding.place
        for finding in collectors.findings(Evidence(recording))
        if finding.rule == "KGP503"
    ] == []
