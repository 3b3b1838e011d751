"""Each program of ``programs/`` runs once under ``kgprof check-graphs`` as its owner runs it, and
its truth holds."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from kgprof import model as m
from kgprof.cli import reading
from kgprof.errors import EXIT_GATE_FAILED
from tests import commands
from tests.reports.truth import PROGRAMS, Expected, Program, programs

# One of a kind at most, and none of a kind that another test runs in its own process; the others
# are `long`.
NORMAL = {
    *("adapters_per_stage", "break_returns_a_count", "import_break_marks", "lazy_relations"),
    *("reset_in_each_step", "sparse_argument", "stance_with_new_sizes", "subclass_page_number"),
}
SEVERE = (m.Level.WARNING, m.Level.ERROR)


class Answer:
    """What check-graphs printed and found."""

    def __init__(self, program: Program, start: str, folder: Path, **environment: str) -> None:
        done = commands.run(
            *("check-graphs", program.workload(start), "-o", folder, *program.args),
            cwd=Path.cwd(),
            environment={**commands.without_settings(), **environment},
        )
        self.exit_code = done.returncode
        self.screen = done.stdout + done.stderr
        self.profile = reading.read(folder)
        self._program = program

    def found(self, *levels: m.Level) -> Counter[tuple[str, int]]:
        """How often each rule was met at each line of the program; line -1 stands for a line of
        another file."""
        rows: Counter[tuple[str, int]] = Counter()
        for finding in self.profile.findings:
            if finding.level in levels:
                rows[finding.rule, self._line(finding.location)] += finding.count
        return rows

    def _line(self, place: m.Location | None) -> int:
        if place is None:
            return 0
        return place.line if Path(place.file).name == self._program.path.name else -1


def cases(*, fixed: bool) -> list[object]:
    """Programs with each way to start them; or those that hold their fixed form."""
    chosen = [program for program in programs() if not fixed or program.mends_itself]
    return [
        pytest.param(program, start, id=f"{program.name}-{start}", marks=_marks(program, fixed))
        for program in chosen
        for start in program.starts
    ]


def _marks(program: Program, fixed: bool) -> tuple[pytest.MarkDecorator, ...]:
    return () if program.name in NORMAL and not fixed else (pytest.mark.long,)


@pytest.mark.parametrize(("program", "start"), cases(fixed=False))
def test_what_check_graphs_says_is_true(program: Program, start: str, tmp_path: Path) -> None:
    answer = Answer(program, start, tmp_path / "out")

    assert answer.exit_code == program.exit, answer.screen
    severe, notes = answer.found(*SEVERE), answer.found(m.Level.NOTE)
    assert set(severe) == places(program.findings), answer.screen
    assert places(program.notes) <= set(notes), answer.screen
    for expected in program.findings:
        assert expected.count in (0, severe[expected.rule, expected.line]), answer.screen
    for pattern in program.says:
        assert re.search(pattern, answer.screen, re.MULTILINE), (
            f"nothing like {pattern}\n{answer.screen}"
        )
    for pattern in program.never_says:
        assert not re.search(pattern, answer.screen, re.MULTILINE), (
            f"it says {pattern}\n{answer.screen}"
        )


@pytest.mark.parametrize(("program", "start"), cases(fixed=True))
def test_nothing_is_found_in_the_fixed_form(program: Program, start: str, tmp_path: Path) -> None:
    answer = Answer(program, start, tmp_path / "out", FIX="1")

    assert (answer.exit_code, answer.found(*SEVERE)) == (0, Counter()), answer.screen


def places(expected: tuple[Expected, ...]) -> set[tuple[str, int]]:
    return {(finding.rule, finding.line) for finding in expected}


def test_each_truth_stands_beside_its_program() -> None:
    truths, sources = PROGRAMS.glob("*.toml"), PROGRAMS.glob("*.py")

    assert {path.stem for path in truths} == {path.stem for path in sources}


def test_the_normal_programs_are_one_of_a_kind() -> None:
    kinds = [program.kind for program in programs() if program.name in NORMAL]

    assert len(kinds) == len(NORMAL)
    assert len(set(kinds)) == len(kinds)


def test_a_truth_does_not_contradict_itself() -> None:
    for program in programs():
        last = len(program.path.read_text("utf-8").splitlines())
        named = (program.line, *(each.line for each in (*program.findings, *program.notes)))
        faulty = bool(program.findings) or program.exit == EXIT_GATE_FAILED

        assert not (program.healthy and faulty), program.name
        assert max(named) <= last, program.name
        assert program.healthy or program.cause, f"what is the cause in {program.name}?"
