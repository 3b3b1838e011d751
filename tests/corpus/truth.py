"""Reads the marks of fixtures/corpus: which finding stands on which line. The format is fixtures/corpus/README.md.

Nothing here imports torch or the programs: marks are comments, found by the tokenizer.
"""

from __future__ import annotations

import ast
import operator
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

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

_COMPARISONS = {"<=": operator.le, ">=": operator.ge, "==": operator.eq, "<": operator.lt, ">": operator.gt}
_MARK = re.compile(r"(?P<rule>KGP\d{3}|note=converged)(?P<fields>(?: [a-z]+=[^ ;\[\]]+)*)(?: \[(?P<where>[^]]+)\])?")
_CONDITION = re.compile(r"(?P<subject>torch|python)(?P<comparison><=|>=|==|<|>)(?P<version>\d+(?:\.\d+)*)")
_RESEMBLES_A_MARK = re.compile(r"kgp\W?\d|note\s*=|guard\s*=|converged", re.IGNORECASE)
_FIELDS_OF = {
    **dict.fromkeys(BREAKS, frozenset({"n", "by"})),
    "KGP102": frozenset({"n", "by", "scope"}),
    "KGP103": frozenset({"guard", "at", "by"}),
    "KGP104": frozenset({"guard", "at", "eager", "by"}),
    "KGP105": frozenset({"guard", "at", "eager", "by"}),
    "KGP107": frozenset({"by"}),
    NOTE: frozenset({"guard", "at", "by"}),
}


class MarkError(ValueError):
    """A mark that cannot be read; the message starts with file:line."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Condition:
    """``torch<2.13``: the mark counts only there."""

    subject: str
    comparison: str
    version: tuple[int, ...]

    def holds(self, versions: dict[str, tuple[int, ...]]) -> bool:
        actual = versions[self.subject][: len(self.version)]
        return bool(_COMPARISONS[self.comparison](actual, self.version))


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """One finding (or note) that has to be reported at ``path:line``, and what is known about it for certain."""

    rule: str
    program: str
    path: Path
    line: int
    guard: str = ""
    records: int | None = None  # graph-break records that torch writes for the site over all calls
    calls: tuple[int, ...] = ()  # indices of the calls in which the site recompiles
    eager_calls: int | None = None  # calls after the limit that find no compiled code and run in eager
    scope: str = ""  # of KGP102: "frame", or "rest" where what precedes the line is compiled
    conditions: tuple[Condition, ...] = ()

    @property
    def is_finding(self) -> bool:
        return self.rule != NOTE

    def applies(self, *, torch: str, python: str) -> bool:
        versions = {"torch": _version(torch), "python": _version(python)}
        return all(condition.holds(versions) for condition in self.conditions)


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
    """All programs by name. Raises MarkError on a mark that cannot be read or that names no program."""
    paths = {path.stem: path for path in sorted(corpus.glob("*.py"))}
    lent: dict[str, list[Mark]] = {name: [] for name in paths}
    for path in sorted((corpus / "library").glob("*.py")):
        for mark in marks_of(path):
            if mark.program not in lent:
                raise MarkError(f"{path}:{mark.line}: by={mark.program} names no program of the corpus")
            lent[mark.program].append(mark)
    return tuple(_program(path, tuple(lent[name])) for name, path in paths.items())


def marks_of(path: Path) -> Iterator[Mark]:
    """The marks in one file, in the order of their lines. Raises MarkError."""
    with path.open("rb") as source:
        for token in tokenize.tokenize(source.readline):
            if token.type == tokenize.COMMENT and _RESEMBLES_A_MARK.search(token.string):
                for text in token.string.removeprefix("#").split(";"):
                    yield _mark(text.strip(), path, token.start[0])


def _program(path: Path, lent: tuple[Mark, ...]) -> Program:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    said = (ast.get_docstring(tree) or "").splitlines()
    return Program(
        name=path.stem,
        path=path,
        calls=_constant(tree, "CALLS", CALLS),
        is_clean="# clean" in said,
        marks=(*marks_of(path), *lent),
    )


def _constant(tree: ast.Module, name: str, default: int) -> int:
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
            return int(ast.literal_eval(node.value))
    return default


def _mark(text: str, path: Path, line: int) -> Mark:
    found = _MARK.fullmatch(text)
    if found is None:
        raise MarkError(f"{path}:{line}: {text!r} looks like a mark and is none")
    rule = found["rule"]
    pairs = [field.split("=", 1) for field in found["fields"].split()]
    fields = dict(pairs)
    if rule not in _FIELDS_OF or len(fields) != len(pairs) or not fields.keys() <= _FIELDS_OF[rule]:
        raise MarkError(f"{path}:{line}: {text!r}: unknown rule or field, or a field twice")
    try:
        return Mark(
            rule=rule,
            program=fields.get("by", path.stem),
            path=path,
            line=line,
            guard=_one_of(GUARD_CLASSES, fields.get("guard")),
            records=int(fields["n"]) if "n" in fields else None,
            calls=_calls(fields["at"]) if "at" in fields else (),
            eager_calls=int(fields["eager"]) if "eager" in fields else None,
            scope=_one_of(SCOPES, fields.get("scope", "frame" if rule == "KGP102" else None)),
            conditions=tuple(_condition(part.strip()) for part in (found["where"] or "").split(",") if part),
        )
    except ValueError as error:
        raise MarkError(f"{path}:{line}: {text!r}: {error}") from error


def _one_of(known: frozenset[str], word: str | None) -> str:
    if word is not None and word not in known:
        raise ValueError(f"{word!r} is none of {', '.join(sorted(known))}")
    return word or ""


def _calls(text: str) -> tuple[int, ...]:
    """``1-3,7`` -> (1, 2, 3, 7)."""
    calls: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        calls.extend(range(int(first), int(last or first) + 1))
    if not calls or calls != sorted(set(calls)):
        raise ValueError("the calls of at= have to rise")
    return tuple(calls)


def _condition(text: str) -> Condition:
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no condition such as torch<2.13")
    return Condition(subject=found["subject"], comparison=found["comparison"], version=_version(found["version"]))


def _version(text: str) -> tuple[int, ...]:
    """``2.13.0+cpu`` -> (2, 13, 0)."""
    return tuple(int(part) for part in re.findall(r"\d+", text.partition("+")[0]))
