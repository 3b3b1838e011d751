"""The marks of fixtures/corpus_runtime are well-formed and consistent; no program runs here."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.corpus.marks import Condition, MarkError
from tests.corpus_runtime.truth import (
    BUFFER,
    CAUSES,
    CORPUS,
    KINDS,
    PATTERNS,
    PLACES,
    RULES,
    WARM_UP,
    Mark,
    marks_of,
    programs,
)

PROGRAMS = programs()
VERSIONS = [("2.11.0+cu130", "3.12.3", "cuda"), ("2.13.0+cpu", "3.11.7", "cpu")]
README = (CORPUS / "README.md").read_text(encoding="utf-8")

PARSED = [(program, ast.parse(program.path.read_text(encoding="utf-8"))) for program in PROGRAMS]


def written(folder: Path, text: str) -> Path:
    path = folder / "program.py"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_corpus_is_large_enough() -> None:
    assert len(PROGRAMS) >= 40
    assert len([program for program in PROGRAMS if program.is_clean]) >= 12


def test_every_rule_cause_kind_and_pattern_has_a_program() -> None:
    marks = [mark for program in PROGRAMS for mark in program.marks]

    assert {mark.rule for mark in marks} == RULES | {BUFFER}
    assert {mark.cause for mark in marks if mark.cause} == CAUSES
    assert {mark.where for mark in marks if mark.where} == PLACES
    assert {(mark.rule, mark.kind) for mark in marks if mark.kind} == {
        (rule, kind) for rule, kinds in KINDS.items() for kind in kinds
    }
    assert {mark.pattern for mark in marks if mark.pattern} == PATTERNS


def test_the_readme_explains_every_rule_and_every_word_of_a_mark() -> None:
    assert set(re.findall(r"^\| (KGP\d{3}) \|", README, re.MULTILINE)) == RULES
    for word in CAUSES | PLACES | PATTERNS | {kind for kinds in KINDS.values() for kind in kinds}:
        assert f"`{word}`" in README or f"kind={word}" in README, word


def test_a_clean_program_has_no_mark_but_notes_and_any_other_has_one() -> None:
    assert not [
        program.name
        for program in PROGRAMS
        if not (all(mark.is_note for mark in program.marks) if program.is_clean else program.marks)
    ]


def test_a_program_defines_build_for_a_device_and_says_what_it_shows() -> None:
    for program, tree in PARSED:
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        (build,) = [node for node in functions if node.name == "build"]

        assert [argument.arg for argument in build.args.args] == ["device"], program.name
        assert ast.get_docstring(tree), program.name
        assert program.calls > WARM_UP, program.name
        assert program.backend in ("", "eager", "aot_eager", "inductor"), program.name
        assert program.device in ("", "cpu", "cuda"), program.name


def test_a_program_compiles_exactly_if_it_names_a_backend() -> None:
    for program in PROGRAMS:
        compiles = "torch.compile(" in program.path.read_text(encoding="utf-8")

        assert compiles == bool(program.backend), program.name


@pytest.mark.parametrize("versions", VERSIONS, ids=" ".join)
def test_a_line_carries_a_rule_once(versions: tuple[str, str, str]) -> None:
    torch, python, device = versions
    for program in PROGRAMS:
        marks = program.expected(torch=torch, python=python, device=device)
        sites = [(mark.rule, mark.name, mark.path, mark.line) for mark in marks]

        assert len(sites) == len(set(sites)), program.name


def test_what_is_said_of_the_output_stands_on_a_def() -> None:
    for program, tree in PARSED:
        definitions = {node.lineno for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        of_the_output = {mark.line for mark in program.marks if mark.rule in KINDS}

        assert of_the_output <= definitions, program.name


def test_a_prediction_is_not_made_on_cuda() -> None:
    for program in PROGRAMS:
        if program.device != "cpu":
            on_cuda = program.expected(torch="2.11.0", python="3.12", device="cuda")

            assert "KGP203" not in {mark.rule for mark in on_cuda}, program.name


def declared_buffers(tree: ast.Module) -> set[object]:
    """The keys of the dictionaries in a program's function ``buffers``."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    inside = [node for each in functions if each.name == "buffers" for node in ast.walk(each)]
    keys = [key for node in inside if isinstance(node, ast.Dict) for key in node.keys]
    return {key.value for key in keys if isinstance(key, ast.Constant)}


def test_every_declared_buffer_has_its_pattern() -> None:
    for program, tree in PARSED:
        marked = {mark.name for mark in program.marks if mark.rule == BUFFER}

        assert marked == declared_buffers(tree), program.name


def test_a_mark_is_read_with_all_it_says(tmp_path: Path) -> None:
    path = written(tmp_path, "x.cpu()  # KGP203 cause=cpu n=0.2 where=eager [cpu, torch<2.13]\n")

    assert list(marks_of(path)) == [
        Mark(
            rule="KGP203",
            program="program",
            path=path,
            line=1,
            cause="cpu",
            where="eager",
            reads=0.2,
            conditions=(
                Condition(subject="cpu"),
                Condition(subject="torch", comparison="<", version=(2, 13)),
            ),
        )
    ]


def test_a_mark_for_a_device_counts_only_there(tmp_path: Path) -> None:
    path = written(tmp_path, "x.cpu()  # KGP203 [cpu]; KGP201 [cuda]\n")

    on_cpu, on_cuda = marks_of(path)

    assert on_cpu.applies(torch="2.13.0+cpu", python="3.11.7", device="cpu")
    assert not on_cpu.applies(torch="2.13.0", python="3.11.7", device="cuda")
    assert on_cuda.applies(torch="2.13.0", python="3.11.7", device="cuda")


@pytest.mark.parametrize(
    "comment",
    [
        "KGP201 cause=weather",
        "KGP201 n=often",
        "KGP201 kind=view",
        "KGP402 kind=internal",
        "KGP401 level=high",
        "KGP101 n=1",
        "KGP201 [tpu]",
        "note=converged",
        "note=buffer pattern=lost",
        "cause=item",
    ],
)
def test_a_mark_that_cannot_be_read_is_an_error_with_its_line(tmp_path: Path, comment: str) -> None:
    path = written(tmp_path, f"x = 1\ny = 2  # {comment}\n")

    with pytest.raises(MarkError, match=re.escape(f"{path}:2: ")):
        list(marks_of(path))


def test_a_mark_lent_to_no_program_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "parts.py").write_text(
        "x.item()  # KGP201 by=nothing\n", encoding="utf-8"
    )

    with pytest.raises(MarkError, match="by=nothing names no program"):
        programs(tmp_path)
