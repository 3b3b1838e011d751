"""Reads the marks of fixtures/corpus_runtime: which finding stands on which line, and what is known
about it.

The format is fixtures/corpus_runtime/README.md. Nothing here imports torch or the programs.
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

CORPUS = Path(__file__).resolve().parents[2] / "fixtures" / "corpus_runtime"
CALLS = 8  # a program that says nothing else is called this often
WARM_UP = 3  # the first calls, in which nothing is a finding

SYNCS = frozenset({"KGP201", "KGP202", "KGP203"})
ALIASES = frozenset({"KGP402", "KGP403", "KGP405"})
RULES = SYNCS | ALIASES | {"KGP305", "KGP401", "KGP404", "KGP406"}
BUFFER = "note=buffer"
CAUSES = frozenset(
    {
        "item",
        "truth-value",
        "cond-predicate",
        "loop-condition",
        "nonzero",
        "mask-index",
        "unique",
        "inside-operator",
        "cpu",
        "numpy",
        "tolist",
        "to",
        "blocking-copy",
        "tensor-from-data",
        "device-synchronize",
        "event-synchronize",
        "stream-synchronize",
    }
)
PLACES = frozenset({"compiled", "break", "eager"})
KINDS = {
    "KGP402": frozenset({"identity", "view"}),
    "KGP403": frozenset({"identity", "view", "replay"}),
    "KGP405": frozenset({"inputs", "internal"}),
}
LEVELS = frozenset({"error", "warning", "note"})
PATTERNS = frozenset({"copied", "mutated", "rebound", "unwritten"})

_GRAMMAR = Grammar(
    fields_of={
        "KGP201": frozenset({"cause", "n", "where", "by"}),
        "KGP202": frozenset({"cause", "n", "by"}),
        "KGP203": frozenset({"cause", "n", "where", "by"}),
        "KGP305": frozenset({"bytes", "by"}),
        "KGP401": frozenset({"level", "since", "by"}),
        **dict.fromkeys(ALIASES, frozenset({"kind", "by"})),
        "KGP404": frozenset({"level", "by"}),
        "KGP406": frozenset({"by"}),
        BUFFER: frozenset({"name", "pattern"}),
    },
    resembles=re.compile(r"kgp\W?\d|note\s*=|cause\s*=|pattern\s*=", re.IGNORECASE),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """One finding (or note) that has to be reported at ``path:line``. What is empty or None is not
    certain."""

    rule: str
    program: str
    path: Path
    line: int
    cause: str = ""
    where: str = ""
    reads: float | None = None  # of a call, mean over the calls after warm-up
    level: str = ""
    since: int | None = None  # call of the last move
    kind: str = ""
    size_bytes: int | None = None
    name: str = ""  # of a buffer
    pattern: str = ""
    conditions: tuple[Condition, ...] = ()

    @property
    def is_note(self) -> bool:
        return self.rule == BUFFER or self.level == "note"

    def applies(self, *, torch: str, python: str, device: str) -> bool:
        return hold(self.conditions, torch=torch, python=python, device=device)


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """One file of the corpus with its marks, those in library/ that name it included."""

    name: str
    path: Path
    calls: int
    device: str  # the only one it runs on, empty for any
    backend: str  # "" where nothing is compiled
    is_clean: bool
    marks: tuple[Mark, ...]

    def runs_on(self, device: str) -> bool:
        return self.device in ("", device)

    def expected(self, *, torch: str, python: str, device: str) -> tuple[Mark, ...]:
        return tuple(
            mark for mark in self.marks if mark.applies(torch=torch, python=python, device=device)
        )


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
        device=constant(tree, "DEVICE", ""),
        backend=constant(tree, "BACKEND", ""),
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
            cause=one_of(CAUSES, fields.get("cause")),
            where=one_of(PLACES, fields.get("where")),
            reads=float(fields["n"]) if "n" in fields else None,
            level=one_of(LEVELS, fields.get("level")),
            since=int(fields["since"]) if "since" in fields else None,
            kind=one_of(KINDS.get(written.word, frozenset()), fields.get("kind")),
            size_bytes=int(fields["bytes"]) if "bytes" in fields else None,
            name=fields.get("name", ""),
            pattern=one_of(PATTERNS, fields.get("pattern")),
            conditions=written.conditions,
        )
    except ValueError as error:
        raise written.error(error) from error
