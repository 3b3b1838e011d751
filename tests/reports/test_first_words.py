"""The marks of benchmarks/first_words.py: the same for every tool, from the truth beside a
program."""

from __future__ import annotations

import pytest

from benchmarks.first_words import Marks, Said, marks, sums
from tests.reports.truth import Expected, Program

ILL = Program(
    name="train",
    situation="a print breaks the graph",
    kind="print",
    start="step",
    exit=1,
    findings=(Expected(rule="KGP101", line=14),),
    cause=("print", "builtin"),
    line=14,
    remedy=("reorderable",),
)
WELL = Program(
    name="train", situation="nothing is wrong", kind="healthy", start="step", exit=0, healthy=True
)
SILENT = Said()


def marked(program: Program, text: str, alone: Said = SILENT) -> Marks:
    return marks(program, Said(text=text), alone)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("src/train.py:14: KGP101 print breaks the graph", True),
        ('  File "/tmp/x/train.py", line 14, in step', True),
        ('{"filename": "/tmp/x/train.py", "line": 14}', True),
        ("train.py:140: KGP101 print", False),
        ("other_train.txt:14", False),
        ('File "train.py", line 140, in step', False),
    ],
)
def test_a_line_is_named_with_its_file_in_whatever_form(text: str, named: bool) -> None:
    assert marked(ILL, text).line is named


def test_a_cause_or_a_remedy_is_named_by_any_of_its_expressions() -> None:
    said = marked(ILL, "Failed to trace builtin operator")

    assert (said.cause, said.remedy, said.left_alone, said.false) == (True, False, None, False)
    assert marked(WELL, "").cause is None


def test_an_ill_program_that_is_called_well_is_a_false_statement() -> None:
    assert marked(ILL, "OK: gate passed: 3 budgets met in 1 run").false
    assert not marked(ILL, "FAILED: gate failed: 1 over the budget of 0 graph-breaks").false
    assert not marked(WELL, "OK: gate passed: 3 budgets met in 1 run").false


def test_a_healthy_program_is_left_alone_unless_a_tool_adds_an_alarm_of_its_own() -> None:
    crash = "Traceback (most recent call last)"

    assert marked(WELL, "x.py:3: note KGP103 f recompiled 1 time").left_alone
    assert not marked(WELL, "x.py:3: KGP101 graph break").left_alone
    assert not marked(WELL, crash).left_alone
    assert marked(WELL, crash, alone=Said(text=crash)).left_alone  # the program prints it itself


def test_a_tool_that_cannot_be_used_has_no_marks() -> None:
    unusable = marks(ILL, Said(impossible="it has no step"), SILENT)
    tools = ("kgprof, step", "kgprof, script", "torch alone", "TORCH_LOGS", "tlparse")
    by_tool = dict.fromkeys(tools, marked(ILL, "print")) | {"kgprof, step": unusable}

    assert (unusable.cause, unusable.line, unusable.impossible) == (None, None, "it has no step")
    assert (
        sums({"train": by_tool})["kgprof, step"]["cause"],
        sums({"train": by_tool})["tlparse"]["cause"],
    ) == (
        [0, 0],
        [1, 1],
    )
