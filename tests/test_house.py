"""The shape of the house: functions, and nothing written twice."""

from __future__ import annotations

import ast
import functools
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "kgprof"
MODULES = sorted(PACKAGE.rglob("*.py"))
LONGEST = 86
BLOCK = 10


@functools.cache
def functions() -> tuple[tuple[str, int], ...]:
    """Each function's place and its lines, from ``def`` to its end; not the declarations of a
    protocol's methods."""
    return tuple(_functions())


def _functions() -> Iterator[tuple[str, int]]:
    for module in MODULES:
        for node in ast.walk(ast.parse(module.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                if all(
                    isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant)
                    for part in node.body
                ):
                    continue
                yield (
                    f"{module.relative_to(PACKAGE).as_posix()} {node.name}",
                    node.end_lineno - node.lineno + 1,
                )


def code_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with code in them and no import, each without indentation and comment."""
    imports = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    words: dict[int, list[str]] = {}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in (
            tokenize.COMMENT,
            tokenize.NL,
            tokenize.NEWLINE,
            tokenize.INDENT,
            tokenize.DEDENT,
        ):
            words.setdefault(token.start[0], []).append(token.string)
    for line, strings in sorted(words.items()):
        if line not in imports and any(
            character.isalnum() for string in strings for character in string
        ):
            yield line, " ".join(strings)


def repeated_blocks(texts: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Two places of ``BLOCK`` equal lines of code each; where more lines are equal, the first place
    only."""
    seen: dict[tuple[str, ...], str] = {}
    for name, text in texts.items():
        lines, goes_on = list(code_lines(text)), False
        for start in range(len(lines) - BLOCK + 1):
            block = tuple(line for _, line in lines[start : start + BLOCK])
            place = f"{name}:{lines[start][0]}"
            first = seen.setdefault(block, place)
            if first != place and not goes_on:
                yield first, place
            goes_on = first != place


def test_no_function_is_longer_than_a_screen() -> None:
    assert not [(name, lines) for name, lines in functions() if lines > LONGEST]


def test_nothing_of_ten_lines_is_written_twice() -> None:
    texts = {
        module.relative_to(PACKAGE).as_posix(): module.read_text("utf-8") for module in MODULES
    }

    assert not list(repeated_blocks(texts))


@pytest.mark.parametrize(
    "apart", ["", "# a comment\n", "\n"], ids=["as it is", "with comments", "with blank lines"]
)
def test_a_block_that_stands_twice_is_seen(apart: str) -> None:
    block = [f"value_{number} = compute({number})\n" for number in range(BLOCK)]
    twice = {"a.py": "".join(block), "b.py": "first = 1\n" + apart.join(block)}

    assert list(repeated_blocks(twice)) == [("a.py:1", "b.py:2")]
    assert not list(repeated_blocks({"a.py": "".join(block), "b.py": "".join(block[1:])}))
