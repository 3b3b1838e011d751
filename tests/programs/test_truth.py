"""The truths of scripts/ are well-formed and fit their programs; nothing runs here."""

from __future__ import annotations

import ast
import functools
import importlib.util
from pathlib import Path

from tests.corpus.truth import GUARD_CLASSES
from tests.programs.run import VISION
from tests.programs.truth import GATES, KINDS, OFTEN, SCRIPTS, SELDOM, Program, programs

PROGRAMS = programs()


def test_the_programs_are_many_and_most_of_them_healthy() -> None:
    assert len(PROGRAMS) >= 20
    assert len([program for program in PROGRAMS if program.gate == "pass"]) >= 10
    assert len({name for program in PROGRAMS for name in program.needs}) >= 6


def test_every_program_has_a_truth() -> None:
    stand_in = {"cpu_torchvision"}

    assert {path.stem for path in SCRIPTS.glob("*.py")} - stand_in == {
        program.name for program in PROGRAMS
    }


def test_a_truth_is_written_in_known_words() -> None:
    for program in PROGRAMS:
        guards = {guard for one in program.recompiles for guard in one.guards}

        assert program.gate in GATES, program.name
        assert {one.kind for one in program.breaks} <= KINDS, program.name
        assert guards <= GUARD_CLASSES, program.name
        assert {one.per for one in program.syncs} <= OFTEN | SELDOM, program.name
        assert ast.get_docstring(ast.parse(program.path.read_text("utf-8"))), program.name


def test_a_healthy_program_has_no_break_and_no_function_that_torch_would_go_on_compiling() -> None:
    for program in PROGRAMS:
        breaks = [one for one in program.breaks if not one.by_torch]
        repeated = [one for one in program.recompiles if one.repeats]
        healthy = not breaks and not repeated
        if "compile" in program.path.read_text("utf-8"):
            assert (program.gate == "pass") == healthy, program.name
        else:
            assert program.gate == "error", program.name  # an eager program has no verdict


def test_a_line_of_a_library_stands_in_the_installed_version() -> None:
    marks = [(program, one) for program in PROGRAMS for one in (*program.breaks, *program.syncs)]
    for program, one in marks:
        if one.site.library:
            functions = functions_of(one.site.library)
            texts = [text for name, text in functions if name == one.site.function]

            assert any(one.site.text in text for text in texts), (program.name, one)


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


def imported_by(program: Program) -> set[str]:
    """The packages that a program imports."""
    names: list[str] = []
    for node in ast.walk(ast.parse(program.path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return {name.partition(".")[0] for name in names}


def test_a_program_names_the_packages_that_it_imports() -> None:
    from_the_extra = {
        "transformers",
        "torchvision",
        "timm",
        "torch_geometric",
        "pytorch_lightning",
        "accelerate",
    }

    for program in PROGRAMS:
        assert imported_by(program) & from_the_extra <= set(program.needs), program.name
