"""The corpus as torch 2.11 and Python 3.12 saw it, recorded once on another machine: the marks hold
there as well."""

from __future__ import annotations

import pytest

from kgprof.model import CompilePass, Recording
from kgprof.reading import recordings
from tests.archives import unpacked
from tests.corpus import found
from tests.corpus.record import key_of
from tests.corpus.truth import CORPUS, programs

PROGRAMS = programs()


@pytest.fixture(scope="module")
def recording() -> Recording:
    return recordings.load(unpacked("corpus_torch_2.11.tgz"))


def test_it_was_made_where_it_says(recording: Recording) -> None:
    environment = recording.header.plan.environment

    assert (environment.torch, environment.python) == ("2.11.0+cu130", "3.12.3")
    assert {
        run.compile.capture_unavailable
        for run in recording.runs
        if isinstance(run.compile, CompilePass)
    } == {()}


def test_every_programs_findings_are_its_marks(recording: Recording) -> None:
    recorded, environment = {run.key for run in recording.runs}, recording.header.plan.environment
    newer = [program.name for program in PROGRAMS if key_of(program) not in recorded]
    assert not newer, f"make the recording anew (fixtures/recordings/README.md): it lacks {newer}"
    other = {}
    for program in PROGRAMS:
        actual = {(f.rule, f.path, f.line): f for f in found.of_run(recording, key_of(program))}
        marks = {
            (mark.rule, str(mark.path.relative_to(CORPUS)), mark.line): mark
            for mark in program.expected(torch=environment.torch, python=environment.python)
        }
        wanted = {at: found.expected(mark, actual.get(at)) for at, mark in marks.items()}
        if actual != wanted:
            other[program.name] = (actual, wanted)

    assert other == {}


def test_every_run_of_it_is_a_program_that_is_still_there(recording: Recording) -> None:
    assert {run.key for run in recording.runs} <= {key_of(program) for program in PROGRAMS}
