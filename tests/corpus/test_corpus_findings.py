"""Every program of the corpus through kgprof's own COMPILE pass and collectors: nothing missed,
nothing invented."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kgprof import collectors
from kgprof.model import CompilePass, Level, Recording, RunRecord
from kgprof.reading import recordings
from kgprof.reading.evidence import Evidence
from tests.corpus import found
from tests.corpus.record import key_of
from tests.corpus.truth import CORPUS, Program, programs
from tests.gathering import for_all

ROOT = CORPUS.parents[1]
PROGRAMS = programs()


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """All programs in one process of their own, so that nothing of pytest is on their stacks."""
    folder = tmp_path_factory.mktemp("corpus") / "recording"
    command = [sys.executable, "-m", "tests.corpus.record", str(folder)]
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


def run_of(recording: Recording, program: Program) -> RunRecord:
    return next(run for run in recording.runs if run.key == key_of(program))


@for_all(PROGRAMS, lambda program: program.name)
def test_a_programs_findings_are_its_marks(program: Program, recording: Recording) -> None:
    environment = recording.header.plan.environment
    actual = {(f.rule, f.path, f.line): f for f in found.of_run(recording, key_of(program))}
    wanted = {
        (mark.rule, str(mark.path.relative_to(CORPUS)), mark.line): mark
        for mark in program.expected(torch=environment.torch, python=environment.python)
    }

    assert actual == {
        place: found.expected(mark, actual.get(place)) for place, mark in wanted.items()
    }


def test_every_source_was_there(recording: Recording) -> None:
    for program in PROGRAMS:
        compiled = run_of(recording, program).compile

        assert isinstance(compiled, CompilePass), program.name
        assert compiled.capture_unavailable == (), program.name
        assert len(compiled.call_us) == program.calls, program.name


def test_a_finding_shows_its_line_and_function(recording: Recording) -> None:
    for finding in collectors.findings(Evidence(recording)):
        if finding.rule == "KGP504":
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


def test_a_graph_break_names_torchs_id_and_what_to_do(recording: Recording) -> None:
    broken = [
        finding
        for finding in collectors.findings(Evidence(recording))
        if finding.rule in ("KGP101", "KGP102")
    ]

    assert [f.message for f in broken if "(GB" not in f.message] == []
    assert [f.message for f in broken if "Hint: " not in f.detail] == []
    # torch's optimizer breaks the graph on purpose: nobody can mend that.
    assert [f.run.strategy for f in broken if f.level is not Level.WARNING and f.run] == [
        "optimizer_step"
    ]
    assert [f.run.strategy for f in broken if not f.counts and f.run] == ["optimizer_step"]


def test_a_recompile_that_happened_once_is_a_note(recording: Recording) -> None:
    once = {
        key_of(p).slug
        for p in PROGRAMS
        for mark in p.marks
        if mark.rule == "KGP103" and len(mark.calls) == 1
    }
    late = [f for f in collectors.findings(Evidence(recording)) if f.rule == "KGP103" and f.one_off]

    assert {finding.run.slug for finding in late if finding.run} == once
    assert {finding.level for finding in late} == {Level.NOTE}
