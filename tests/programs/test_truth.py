"""The truths of scripts/ are well-formed and fit their programs; nothing runs here."""

from __future__ import annotations

import ast
import functools
import importlib.util
from pathlib import Path

import pytest

from tests.corpus.truth import GUARD_CLASSES
from tests.programs.run import VISION
from tests.programs.truth import GATES, KINDS, OFTEN, SCRIPTS, SELDOM, Program, programs

PROGRAMS = programs()
every_program = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)


def test_the_programs_are_many_and_most_of_them_healthy() -> None:
    assert len(PROGRAMS) >= 20
    assert len([program for program in PROGRAMS if program.gate == "pass"]) >= 10
    assert len({name for program in PROGRAMS for name in program.needs}) >= 6


def test_every_program_has_a_truth() -> None:
    stand_in = {"cpu_torchvision"}

    assert {path.stem for path in SCRIPTS.glob("*.py")} - stand_in == {
        program.name for program in PROGRAMS
    }


@every_program
def test_a_truth_is_written_in_known_words(program: Program) -> None:
    assert program.gate in GATES
    assert {one.kind for one in program.breaks} <= KINDS
    assert {guard for one in program.recompiles for guard in one.guards} <= GUARD_CLASSES
    assert {one.per for one in program.syncs} <= OFTEN | SELDOM
    assert ast.get_docstring(ast.parse(program.path.read_text("utf-8")))


@every_program
def test_a_healthy_program_has_no_break_and_no_function_that_torch_would_go_on_compiling(
    program: Program,
) -> None:
    faulty = any(not one.by_torch for one in program.breaks) or any(
        one.repeats for one in program.recompiles
    )
    eager = "compile" not in program.path.read_text("utf-8")  # then there is no verdict

    assert program.gate == "error" if eager else (program.gate == "pass") is not faulty


@every_program
def test_a_line_of_a_library_stands_in_the_installed_version(program: Program) -> None:
    for site in (one.site for one in (*program.breaks, *program.syncs) if one.site.library):
        assert any(
            site.text in text for name, text in functions_of(site.library) if name == site.function
        )


@functools.cache  # many sites lie in one file
def functions_of(library: str) -> tuple[tuple[str, str], ...]:
    """Name and lines of each function of a file of an installed package."""
    package = importlib.util.find_spec(library.partition("/")[0])
    folder = Path(package.origin).parents[1] if package is not None and package.origin else VISION
    text = (folder / library).read_text("utf-8")
    lines = text.splitlines()
    return tuple(
        (node.name, "\n".join(lines[node.lineno - 1 : node.end_lineno]))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef)
    )


@every_program
def test_a_program_names_the_packages_that_it_imports(program: Program) -> None:
    tree = ast.parse(program.path.read_text("utf-8"))
    roots = {
        name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
        )
    }
    from_the_extra = {
        "transformers",
        "torchvision",
        "timm",
        "torch_geometric",
        "pytorch_lightning",
        "accelerate",
    }

    assert roots & from_the_extra <= set(program.needs)
