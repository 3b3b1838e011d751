"""The marks of fixtures/corpus are well-formed and consistent; no program runs here."""

from __future__ import annotations

import ast
import itertools
import re
from pathlib import Path

import pytest

from tests.corpus.truth import (
    BREAKS,
    CORPUS,
    GUARD_CLASSES,
    NOTE,
    RECOMPILES,
    RULES,
    WARM_UP,
    Condition,
    Mark,
    MarkError,
    marks_of,
    programs,
)

PROGRAMS = programs()
VERSIONS = [("2.11.0+cu130", "3.12.3"), ("2.13.0+cpu", "3.11.7")]


def definition_lines(path: Path) -> set[int]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def written(folder: Path, text: str) -> Path:
    path = folder / "program.py"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_corpus_is_large_enough() -> None:
    assert len(PROGRAMS) >= 60
    assert len([program for program in PROGRAMS if program.is_clean]) >= 12


def test_every_rule_and_every_guard_class_has_a_program() -> None:
    marks = [mark for program in PROGRAMS for mark in program.marks]

    assert {mark.rule for mark in marks} == RULES | {NOTE}
    assert {mark.guard for mark in marks if mark.guard} == GUARD_CLASSES


def test_the_readme_explains_exactly_the_guard_classes_that_marks_may_name() -> None:
    readme = (CORPUS / "README.md").read_text(encoding="utf-8")
    _, _, after = readme.partition("| guard class |")
    table, _, _ = after.partition("\n\n")

    assert set(re.findall(r"^\| `([a-z-]+)`", table, re.MULTILINE)) == GUARD_CLASSES


def test_a_program_is_either_clean_or_marked() -> None:
    assert not [program.name for program in PROGRAMS if program.is_clean == bool(program.marks)]


def test_a_program_defines_build_and_says_what_it_shows() -> None:
    for program in PROGRAMS:
        tree = ast.parse(program.path.read_text(encoding="utf-8"))
        functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}

        assert "build" in functions, program.name
        assert ast.get_docstring(tree), program.name


@pytest.mark.parametrize("versions", VERSIONS, ids=" ".join)
def test_a_line_carries_a_rule_once_and_one_finding_of_a_topic(versions: tuple[str, str]) -> None:
    torch, python = versions
    # one frame may go on where another one falls back
    breaks = [frozenset({rule}) for rule in sorted(BREAKS)]
    topics = (*breaks, RECOMPILES, frozenset({NOTE}), frozenset({"KGP107"}))
    for program, topic in itertools.product(PROGRAMS, topics):
        marks = program.expected(torch=torch, python=python)
        sites = [(mark.path, mark.line) for mark in marks if mark.rule in topic]

        assert len(sites) == len(set(sites)), (program.name, topic)


def test_a_recompile_stands_on_a_def_or_on_a_call_into_a_library() -> None:
    for program in PROGRAMS:
        text = program.path.read_text(encoding="utf-8")
        definitions = definition_lines(program.path)
        guarded = {mark.line for mark in program.marks if mark.guard}
        codes = [text.splitlines()[line - 1].partition("#")[0] for line in guarded - definitions]

        assert all("(" in code for code in codes), program.name
        if codes:
            assert "torch's own" in (ast.get_docstring(ast.parse(text)) or ""), program.name


def test_the_calls_of_a_recompile_agree_with_its_rule() -> None:
    marked = [(program, mark) for program in PROGRAMS for mark in program.marks]
    for program, mark in marked:
        in_a_row = tuple(range(1, len(mark.calls) + 1))
        agrees = {
            NOTE: bool(mark.calls) and all(0 <= call < WARM_UP for call in mark.calls),
            "KGP103": bool(mark.calls)
            and all(WARM_UP <= call < program.calls for call in mark.calls),
            "KGP104": mark.calls != in_a_row and bool(mark.eager_calls),
            "KGP105": mark.calls == in_a_row
            and mark.eager_calls == program.calls - len(mark.calls) - 1,
        }

        assert agrees.get(mark.rule, True), (program.name, mark)


def test_a_mark_is_read_with_all_it_says(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "def f(x):  # KGP105 guard=dispatch-keys at=1-3,7 eager=2 [torch<2.13, python>=3.12]\n",
    )

    assert list(marks_of(path)) == [
        Mark(
            rule="KGP105",
            program="program",
            path=path,
            line=1,
            guard="dispatch-keys",
            calls=(1, 2, 3, 7),
            eager_calls=2,
            conditions=(
                Condition(subject="torch", comparison="<", version=(2, 13)),
                Condition(subject="python", comparison=">=", version=(3, 12)),
            ),
        )
    ]


def test_two_marks_on_one_line_are_told_apart_by_their_conditions(tmp_path: Path) -> None:
    path = written(
        tmp_path, "print()  # KGP101 n=2 [python<3.12]; KGP102 scope=rest [python>=3.12]\n"
    )

    first, second = marks_of(path)

    assert (first.rule, first.records, first.scope) == ("KGP101", 2, "")
    assert (second.rule, second.records, second.scope) == ("KGP102", None, "rest")
    assert first.applies(torch="2.13.0+cpu", python="3.11.7")
    assert not second.applies(torch="2.13.0+cpu", python="3.11.7")
    assert second.applies(torch="2.11.0", python="3.12.0")


def test_text_in_a_string_is_no_mark(tmp_path: Path) -> None:
    path = written(tmp_path, 'text = "# KGP101"  # an ordinary comment\n')

    assert list(marks_of(path)) == []


@pytest.mark.parametrize(
    "comment",
    [
        "KGP 101",
        "kgp101",
        "KGP101 n=one",
        "KGP101 guard=size",
        "KGP999",
        "KGP101 and a remark",
        "KGP101 n=1 n=2",
        "KGP103 guard=weather at=10",
        "KGP103 guard=size at=10,4",
        "KGP102 scope=all",
        "KGP101 [torch<new]",
        "KGP101 n=1;",
        "note=stable guard=size",
        "guard=size",
    ],
)
def test_a_mark_that_cannot_be_read_is_an_error_with_its_line(tmp_path: Path, comment: str) -> None:
    path = written(tmp_path, f"x = 1\ny = 2  # {comment}\n")

    with pytest.raises(MarkError, match=re.escape(f"{path}:2: ")):
        list(marks_of(path))


def test_a_mark_lent_to_no_program_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "parts.py").write_text(
        "print()  # KGP101 by=nothing\n", encoding="utf-8"
    )

    with pytest.raises(MarkError, match="by=nothing names no program"):
        programs(tmp_path)
