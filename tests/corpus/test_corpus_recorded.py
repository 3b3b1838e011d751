"""The corpus as torch 2.11 and Python 3.12 saw it, recorded once on another machine: the marks hold
there as well."""

from __future__ import annotations

import pytest

from kgprof.model import CompilePass, Recording
from kgprof.reading import recordings
from tests.archives import unpacked
from tests.corpus import found
from tests.corpus.record import key_of
from tests.corpus.truth import CORPUS, Program, programs

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


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_programs_findings_are_its_marks(recording: Recording, program: Program) -> None:
    environment = recording.header.plan.environment
    if key_of(program) not in {run.key for run in recording.runs}:
        pytest.fail(
            f"{program.name} is newer than the recording: make it anew "
            "(fixtures/recordings/README.md)"
        )
    actual = {(f.rule, f.path, f.line): f for f in found.of_run(recording, key_of(program))}
    wanted = {
        (mark.rule, str(mark.path.relative_to(CORPUS)), mark.line): mark
        for mark in program.expected(torch=environment.torch, python=environment.python)
    }

    assert actual == {
        place: found.expected(mark, actual.get(place)) for place, mark in wanted.items()
    }


def test_every_run_of_it_is_a_program_that_is_still_there(recording: Recording) -> None:
    assert {run.key for run in recording.runs} <= {key_of(program) for program in PROGRAMS}
