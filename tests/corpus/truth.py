"""Reads the marks of fixtures/corpus: which finding stands on which line. The format is
fixtures/corpus/README.md.

Nothing here imports torch or the programs: marks are comments, found by the tokenizer.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.corpus.marks import (
    Condition,
    Grammar,
    MarkError,
    WrittenMark,
    constant,
    hold,
    one_of,
    written_marks,
)

CORPUS = Path(__file__).resolve().parents[2] / "fixtures" / "corpus"
CALLS = 20  # a program that says nothing else is called this often
WARM_UP = 3  # the first calls, in which a recompile is a note

BREAKS = frozenset({"KGP101", "KGP102"})
RECOMPILES = frozenset({"KGP103", "KGP104", "KGP105"})
RULES = BREAKS | RECOMPILES | {"KGP107"}
NOTE = "note=converged"
GUARD_CLASSES = frozenset(
    {
        "size",
        "stride",
        "rank",
        "dtype",
        "device",
        "dispatch-keys",
        "requires-grad",
        "aliasing",
        "type",
        "value",
        "identity",
        "length",
        "keys",
        "attribute",
        "grad-mode",
        "autocast",
        "global-state",
        "backend",
    }
)
SCOPES = frozenset({"frame", "rest"})

_FIELDS_OF = {
    **dict.fromkeys(BREAKS, frozenset({"n", "by"})),
    "KGP102": frozenset({"n", "by", "scope"}),
    "KGP103": frozenset({"guard", "at", "by"}),
    "KGP104": frozenset({"guard", "at", "eager", "by"}),
    "KGP105": frozenset({"guard", "at", "eager", "by"}),
    "KGP107": frozenset({"by"}),
    NOTE: frozenset({"guard", "at", "by"}),
}
_GRAMMAR = Grammar(
    fields_of=_FIELDS_OF,
    resembles=re.compile(r"kgp\W?\d|note\s*=|guard\s*=|converged", re.IGNORECASE),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """One finding (or note) that has to be reported at ``path:line``, and what is known about it
    for certain."""

    rule: str
    program: str
    path: Path
    line: int
    guard: str = ""
    records: int | None = None  # graph-break records that torch writes for the site over all calls
    calls: tuple[int, ...] = ()  # indices of the calls in which the site recompiles
    # calls after the limit that find no compiled code and run in eager
    eager_calls: int | None = None
    scope: str = ""  # of KGP102: "frame", or "rest" where what precedes the line is compiled
    conditions: tuple[Condition, ...] = ()

    @property
    def is_finding(self) -> bool:
        return self.rule != NOTE

    def applies(self, *, torch: str, python: str) -> bool:
        return hold(self.conditions, torch=torch, python=python, device="cpu")


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """One file of the corpus with its marks, those in library/ that name it included."""

    name: str
    path: Path
    calls: int
    is_clean: bool
    marks: tuple[Mark, ...]

    def expected(self, *, torch: str, python: str) -> tuple[Mark, ...]:
        return tuple(mark for mark in self.marks if mark.applies(torch=torch, python=python))


def programs(corpus: Path = CORPUS) -> tuple[Program, ...]:
    """All programs by name. Raises MarkError on a mark that cannot be read or that names no
    program."""
    paths = {path.stem: path for path in sorted(corpus.glob("*.py"))}
    lent: dict[str, list[Mark]] = {name: [] for name in paths}
    for path in sorted((corpus / "library").glob("*.py")):
        for mark in marks_of(path):
            if mark.program not in lent:
                raise MarkError(
                    f"{path}:{mark.line}: by={mark.program} names no program of the corpus"
                )
            lent[mark.program].append(mark)
    return tuple(_program(path, tuple(lent[name])) for name, path in paths.items())


def marks_of(path: Path) -> Iterator[Mark]:
    """The marks in one file, in the order of their lines. Raises MarkError."""
    yield from (_mark(written) for written in written_marks(path, _GRAMMAR))


def _program(path: Path, lent: tuple[Mark, ...]) -> Program:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    said = (ast.get_docstring(tree) or "").splitlines()
    return Program(
        name=path.stem,
        path=path,
        calls=constant(tree, "CALLS", CALLS),
        is_clean="# clean" in said,
        marks=(*marks_of(path), *lent),
    )


def _mark(written: WrittenMark) -> Mark:
    fields = written.fields
    try:
        return Mark(
            rule=written.word,
            program=fields.get("by", written.path.stem),
            path=written.path,
            line=written.line,
            guard=one_of(GUARD_CLASSES, fields.get("guard")),
            records=int(fields["n"]) if "n" in fields else None,
            calls=_calls(fields["at"]) if "at" in fields else (),
            eager_calls=int(fields["eager"]) if "eager" in fields else None,
            scope=one_of(
                SCOPES, fields.get("scope", "frame" if written.word == "KGP102" else None)
            ),
            conditions=written.conditions,
        )
    except ValueError as error:
        raise written.error(error) from error


def _calls(text: str) -> tuple[int, ...]:
    """``1-3,7`` -> (1, 2, 3, 7)."""
    calls: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        calls.extend(range(int(first), int(last or first) + 1))
    if not calls or calls != sorted(set(calls)):
        raise ValueError("the calls of at= have to rise")
    return tuple(calls)
